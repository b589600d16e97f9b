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
// max|x| is below 2^-100, all values and the scale are 0. If a value is not finite, the scale is
// NaN.
Quantized Quantize(std::span<const float> x);

// Returns f32(sum_k x[k] w[k]) * x.scale * w.scale, multiplied from left to right. Then adds the
// products of kept channels one after another.
float Int8Product(const Quantized& x, const Quantized& w, std::span<const float> kept_x = {},
                  std::span<const float> kept_w = {});

// A column in int4: a weight is (code - zero) * scale of its group.
struct Int4Column {
  std::vector<uint8_t> codes;
  int64_t group;              // the last one may be shorter
  std::vector<float> scales;  // of each group
  std::vector<uint8_t> zeros;
};

// Quantises by groups: with m the value of the largest magnitude, the first of equal ones,
// scale = m / -8 and code = min(round(w * (-8 / m)) + 8, 15), ties to even. If |m| is below 2^-100
// the scale is 0, and if a value is not finite it is NaN. Zero points are 8.
Int4Column QuantizeInt4(std::span<const float> w, int64_t group);

// Returns the sum over groups, from +0 on, of f32(sum_k x[k] (code[k] - zero)) * scale, times
// x.scale.
float Int4Product(const Quantized& x, const Int4Column& w);

}  // namespace sluice::kernels::reference
