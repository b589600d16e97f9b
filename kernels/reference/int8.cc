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

float Int8Product(const Quantized& x, const Quantized& w, std::span<const float> kept_x,
                  std::span<const float> kept_w) {
  int64_t sum = 0;
  for (size_t k = 0; k < x.values.size(); ++k) sum += int64_t{x.values[k]} * w.values[k];
  const float scaled = static_cast<float>(sum) * x.scale;
  float y = scaled * w.scale;
  for (size_t i = 0; i < kept_x.size(); ++i) {
    const float product = kept_x[i] * kept_w[i];
    y = y + product;
  }
  return y;
}

Int4Column QuantizeInt4(std::span<const float> w, int64_t group) {
  constexpr float kLeast = 0x1p-100f;
  constexpr int kZero = 8, kMost = 15;
  Int4Column column = {std::vector<uint8_t>(w.size(), kZero), group, {}, {}};
  for (size_t first = 0; first < w.size(); first += group) {
    const size_t end = std::min(w.size(), first + group);
    float largest = 0;
    bool finite = true;
    for (size_t i = first; i < end; ++i) {
      finite = finite && std::isfinite(w[i]);
      if (std::abs(w[i]) > std::abs(largest)) largest = w[i];
    }
    column.zeros.push_back(kZero);
    if (!finite || std::abs(largest) < kLeast) {
      column.scales.push_back(finite ? 0 : std::numeric_limits<float>::quiet_NaN());
      continue;
    }
    column.scales.push_back(largest / -kZero);
    const float inverse = -kZero / largest;
    for (size_t i = first; i < end; ++i) {
      const float scaled = w[i] * inverse;
      column.codes[i] =
          static_cast<uint8_t>(std::min(static_cast<int>(std::nearbyint(scaled)) + kZero, kMost));
    }
  }
  return column;
}

float Int4Product(const Quantized& x, const Int4Column& w) {
  float y = 0;
  for (size_t g = 0; g < w.scales.size(); ++g) {
    int64_t sum = 0;
    const size_t end = std::min(w.codes.size(), (g + 1) * w.group);
    for (size_t k = g * w.group; k < end; ++k) {
      sum += int64_t{x.values[k]} * (w.codes[k] - w.zeros[g]);
    }
    const float scaled = static_cast<float>(sum) * w.scales[g];
    y = y + scaled;
  }
  return y * x.scale;
}

}  // namespace sluice::kernels::reference
