// Quantisation to int8 and products of quantised matrices, in integers. Kernels must give the same
// bits: sums are exact, and each operation on floats is rounded by itself.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sluice::kernels::reference {

// Values with one scale: x is about scale * values.
struct Quantized {
  std::vector<int8_t> values;
  float scale;
};

// Returns values[i] = round(x[i] * (127 / max|x|)), ties to even, and scale = max|x| / 127. If
// max|x| is below 2^-100 all of them are 0, and if a value is not finite the scale is NaN.
Quantized Quantize(std::span<const float> x);

// Returns f32(sum_k x[k] w[k]) * x.scale * w.scale, multiplied from left to right.
float Int8Product(const Quantized& x, const Quantized& w);

}  // namespace sluice::kernels::reference
