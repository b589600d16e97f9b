// RMSNorm (Zhang and Sennrich, arXiv 1910.07467): out = x / sqrt(mean(x^2) + eps) * weight.
// LayerNorm (Ba et al., arXiv 1607.06450):
//   out = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * weight + bias.
// If `quantized` is present, the rows of out are also quantised while they are in the cache.
#pragma once

#include <cstdint>

#include "kernels/cpu/context.h"
#include "kernels/cpu/quantized_rows.h"

namespace sluice::kernels {

// Computes RMSNorm. x, out: [rows, dim] dense, may be the same buffer; weight: [dim] or nullptr
// (ones).
void RmsNorm(const Context& context, const float* x, const float* weight, float eps, int64_t rows,
             int64_t dim, float* out, const QuantizedRows& quantized = {});

// Computes LayerNorm. bias: [dim] or nullptr (zeros).
void LayerNorm(const Context& context, const float* x, const float* weight, const float* bias,
               float eps, int64_t rows, int64_t dim, float* out,
               const QuantizedRows& quantized = {});

}  // namespace sluice::kernels
