#include "engine/model/relative_bias.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>

namespace sluice {

int64_t RelativeBucket(int64_t distance, int64_t buckets, int64_t max_distance) {
  const int64_t half = buckets / 2, exact = half / 2, size = std::abs(distance);
  const int64_t base = distance > 0 ? half : 0;
  if (size < exact) return base + size;
  // The original computes this in float, which decides the borders of the buckets.
  const float scale =
      std::log(static_cast<float>(size) / static_cast<float>(exact)) /
      static_cast<float>(std::log(static_cast<double>(max_distance) / static_cast<double>(exact))) *
      static_cast<float>(half - exact);
  return base + std::min(exact + static_cast<int64_t>(scale), half - 1);
}

std::vector<float> BiasByDistance(std::span<const float> table, int64_t heads, int64_t max_distance,
                                  int64_t positions) {
  const int64_t buckets = std::ssize(table) / heads, row = 2 * positions + kBiasSlack;
  std::vector<float> bias(heads * row);
  for (int64_t d = -positions; d < positions; ++d) {
    const int64_t bucket = RelativeBucket(d, buckets, max_distance);
    for (int64_t h = 0; h < heads; ++h) {
      bias[h * row + positions + d] = table[bucket * heads + h];
    }
  }
  return bias;
}

std::vector<float> AlibiByDistance(int64_t heads, int64_t positions) {
  const int64_t row = 2 * positions + kBiasSlack;
  const auto power = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(heads)));
  std::vector<float> bias(heads * row);
  for (int64_t h = 0; h < heads; ++h) {
    const auto n = static_cast<double>(power);
    const double exponent = h < power ? -8.0 * static_cast<double>(h + 1) / n
                                      : -4.0 * static_cast<double>(2 * (h - power) + 1) / n;
    const double slope = std::exp2(exponent);
    for (int64_t d = -positions; d < positions; ++d) {
      bias[h * row + positions + d] = static_cast<float>(-slope * static_cast<double>(std::abs(d)));
    }
  }
  return bias;
}

int64_t RelativeRow(int64_t distance, int64_t span, int64_t max_distance) {
  const int64_t middle = span / 2, size = std::abs(distance);
  int64_t bucket = size;
  if (max_distance > 0 && size > middle) {
    // The original computes this in float, which decides the borders of the buckets.
    const auto logarithm = [&](int64_t n) {
      return std::log(static_cast<float>(static_cast<double>(n) / static_cast<double>(middle)));
    };
    const float part =
        logarithm(size) / logarithm(max_distance - 1) * static_cast<float>(middle - 1);
    bucket = middle + static_cast<int64_t>(std::ceil(part));
  }
  return std::clamp<int64_t>(span + (distance > 0 ? -bucket : bucket), 0, 2 * span - 1);
}

std::vector<int32_t> RelativeRows(int64_t span, int64_t max_distance, int64_t positions) {
  std::vector<int32_t> rows;
  for (int64_t d = -positions; d < positions; ++d) {
    rows.push_back(static_cast<int32_t>(RelativeRow(d, span, max_distance)));
  }
  return rows;
}

}  // namespace sluice
