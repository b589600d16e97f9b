#include "verify/int8_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sluice::verify {

Int8Rows QuantizeRows(std::span<const float> x, int64_t width, std::span<const int32_t> kept) {
  constexpr float kMost = 127, kLeast = 0x1p-100f;
  std::vector<float> counted(static_cast<size_t>(width), 1.0f);
  for (const int32_t channel : kept) counted[channel] = 0;
  Int8Rows out;
  out.values.reserve(x.size());
  for (int64_t first = 0; first < std::ssize(x); first += width) {
    const auto row = x.subspan(static_cast<size_t>(first), static_cast<size_t>(width));
    float largest = 0;
    for (int64_t d = 0; d < width; ++d) {
      largest = std::max(largest, std::abs(row[d]) * counted[d]);
    }
    const bool finite = std::ranges::all_of(row, [](float value) { return std::isfinite(value); });
    const bool counts = finite && largest >= kLeast;
    const float inverse = counts ? kMost / largest : 0;
    const float scale = counts ? largest / kMost : 0;
    out.scales.push_back(finite ? scale : std::numeric_limits<float>::quiet_NaN());
    for (const float value : row) {
      const float limited = std::clamp(value * inverse, -kMost, kMost);
      out.values.push_back(counts ? static_cast<int8_t>(std::nearbyint(limited)) : 0);
    }
  }
  return out;
}

}  // namespace sluice::verify
