// RMSNorm (Zhang and Sennrich, arXiv 1910.07467): out = x / sqrt(mean(x^2) + eps) * weight.
#pragma once

#include <cstdint>

#include "kernels/cpu/context.h"

namespace sluice::kernels {

// x, out: [rows, dim] dense, may be the same buffer; weight: [dim] or nullptr (all ones).
void RmsNorm(const Context& context, const float* x, const float* weight, float eps, int64_t rows,
             int64_t dim, float* out);

}  // namespace sluice::kernels
