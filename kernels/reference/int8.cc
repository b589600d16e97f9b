#include "kernels/reference/int8.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sluice::kernels::reference {

Quantized Quantize(std::span<const float> x) {
  constexpr float kMost = 127, kLeast = 0x1p-100f;
  Quantized quantized = {.values = std::vector<int8_t>(x.size(), 0), .scale = 0};
  float largest = 0;
  for (const float value : x) {
    if (!std::isfinite(value)) {
      quantized.scale = std::numeric_limits<float>::quiet_NaN();
      return quantized;
    }
    largest = std::max(largest, std::abs(value));
  }
  if (largest < kLeast) return quantized;
  const float inverse = kMost / largest;
  for (size_t i = 0; i < x.size(); ++i) {
    const float scaled = x[i] * inverse;
    quantized.values[i] = static_cast<int8_t>(std::nearbyint(scaled));
  }
  quantized.scale = largest / kMost;
  return quantized;
}

float Int8Product(const Quantized& x, const Quantized& w) {
  int64_t sum = 0;
  for (size_t k = 0; k < x.values.size(); ++k) sum += int64_t{x.values[k]} * w.values[k];
  const float scaled = static_cast<float>(sum) * x.scale;
  return scaled * w.scale;
}

}  // namespace sluice::kernels::reference
