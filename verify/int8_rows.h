// Matrices in int8, quantised in the same way as when Sluice loads a model.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sluice::verify {

// A matrix, [rows, width], with a scale for each row: values = round(x * (127 / max|x|)), ties to
// even; scale = max|x| / 127. A row whose largest magnitude is below 2^-100 counts as zeros. If a
// value is not finite, the row's scale is NaN. max|x| does not include kept channels, whose values
// are limited to [-127, 127].
struct Int8Rows {
  std::vector<int8_t> values;
  std::vector<float> scales;
};

Int8Rows QuantizeRows(std::span<const float> x, int64_t width, std::span<const int32_t> kept = {});

}  // namespace sluice::verify
