// RMSNorm in double: out = x / sqrt(mean(x^2) + eps) * weight.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sluice::kernels::reference {

// x: [rows, dim]; weight: [dim], or empty for ones. Returns [rows, dim].
std::vector<double> RmsNorm(std::span<const double> x, std::span<const double> weight, double eps,
                            int64_t dim);

}  // namespace sluice::kernels::reference
