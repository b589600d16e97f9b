#include "verify/outliers.h"

#include <algorithm>
#include <cmath>

namespace sluice::verify {
namespace {

// Returns how much removing each channel lowers the sum of the squares of the rows' largest values.
// `rows` are magnitudes.
std::vector<double> Gains(std::span<const float> rows, int64_t width) {
  std::vector<double> gains(static_cast<size_t>(width));
  for (int64_t first = 0; first < std::ssize(rows); first += width) {
    float largest = 0, second = 0;
    int64_t channel = 0;
    for (int64_t d = 0; d < width; ++d) {
      const float value = rows[first + d];
      if (value > largest) {
        second = largest;
        largest = value;
        channel = d;
      } else {
        second = std::max(second, value);
      }
    }
    gains[channel] += static_cast<double>(largest) * largest - static_cast<double>(second) * second;
  }
  return gains;
}

}  // namespace

std::vector<int32_t> OutlierChannels(std::span<const float> rows, int64_t width, int64_t most) {
  std::vector<float> magnitudes;
  magnitudes.reserve(rows.size());
  for (const float value : rows) magnitudes.push_back(std::abs(value));
  std::vector<int32_t> channels;
  while (std::ssize(channels) < most) {
    const std::vector<double> gains = Gains(magnitudes, width);
    const auto best = std::ranges::max_element(gains);
    if (!(*best > 0)) break;
    const auto channel = static_cast<int32_t>(best - gains.begin());
    channels.push_back(channel);
    for (size_t i = channel; i < magnitudes.size(); i += width) magnitudes[i] = 0;
  }
  return channels;
}

}  // namespace sluice::verify
