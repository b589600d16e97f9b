// Linear layers in double: dense and position-wise.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sluice::kernels::reference {

// Returns x weight^T + bias, [rows, out].
//   x: [rows, in], weight: [out, in], bias: [out] or empty
std::vector<double> Linear(std::span<const double> x, std::span<const double> weight,
                           std::span<const double> bias, int64_t in, int64_t out);

// Returns x[r] weight[positions[r]] + bias for each row r, [rows, out].
//   x: [rows, in], weight: [max_positions, in, out]
//   bias: empty, [out], or [max_positions, out] (position_bias)
std::vector<double> PositionWise(std::span<const double> x, std::span<const int32_t> positions,
                                 std::span<const double> weight, std::span<const double> bias,
                                 bool position_bias, int64_t in, int64_t out);

// Returns einsum("bld,lde->ble"), computed literally; x: [batch, length, in], weight: [length, in,
// out].
std::vector<double> PositionWiseEinsum(std::span<const double> x, std::span<const double> weight,
                                       int64_t batch, int64_t length, int64_t in, int64_t out);

}  // namespace sluice::kernels::reference
