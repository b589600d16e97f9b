#include "engine/model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace sluice {

std::vector<double> RopeFrequencies(const RopeConfig& rope, int64_t rotary_dim) {
  std::vector<double> frequencies(rotary_dim / 2);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    double& frequency = frequencies[i];
    frequency =
        std::pow(rope.theta, -2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim));
    if (!rope.llama3) continue;
    const RopeConfig::Llama3& scaling = *rope.llama3;
    const double turns =
        static_cast<double>(scaling.original_max_positions) * frequency / (2.0 * std::numbers::pi);
    const double kept = std::clamp(
        (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor),
        0.0, 1.0);
    frequency *= kept + (1.0 - kept) / scaling.factor;
  }
  return frequencies;
}

}  // namespace sluice
