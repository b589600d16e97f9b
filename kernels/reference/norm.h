// RMSNorm and LayerNorm in double.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sluice::kernels::reference {

// Returns x / sqrt(mean(x^2) + eps) * weight for each row, [rows, dim].
//   x: [rows, dim]; weight: [dim], or empty for ones
std::vector<double> RmsNorm(std::span<const double> x, std::span<const double> weight, double eps,
                            int64_t dim);

// Returns (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias for each row; bias: [dim], or
// empty for zeros.
std::vector<double> LayerNorm(std::span<const double> x, std::span<const double> weight,
                              std::span<const double> bias, double eps, int64_t dim);

}  // namespace sluice::kernels::reference
