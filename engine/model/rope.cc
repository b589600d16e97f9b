#include "engine/model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace sluice {

namespace {

double Llama3Scale(double frequency, const RopeConfig::Llama3& scaling) {
  const double turns =
      static_cast<double>(scaling.original_max_positions) * frequency / (2.0 * std::numbers::pi);
  const double kept = std::clamp(
      (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor), 0.0,
      1.0);
  return kept + (1.0 - kept) / scaling.factor;
}

// The range of frequency indices between YaRN's kept frequencies and its divided ones.
struct YarnRange {
  double low, high;
};

YarnRange YarnRangeOf(const RopeConfig& rope, int64_t rotary_dim) {
  const RopeConfig::Yarn& yarn = *rope.yarn;
  const auto index_of = [&](double turns) {
    return static_cast<double>(rotary_dim) *
           std::log(static_cast<double>(yarn.original_max_positions) /
                    (turns * 2 * std::numbers::pi)) /
           (2 * std::log(rope.theta));
  };
  YarnRange range = {index_of(yarn.beta_fast), index_of(yarn.beta_slow)};
  if (yarn.truncate) range = {std::floor(range.low), std::ceil(range.high)};
  range.low = std::max(range.low, 0.0);
  range.high = std::min(range.high, static_cast<double>(rotary_dim - 1));
  if (range.low == range.high) range.high += 0.001;
  return range;
}

}  // namespace

std::vector<double> RopeFrequencies(const RopeConfig& rope, int64_t rotary_dim) {
  std::vector<double> frequencies(rotary_dim / 2);
  const YarnRange range = rope.yarn ? YarnRangeOf(rope, rotary_dim) : YarnRange{};
  for (size_t i = 0; i < frequencies.size(); ++i) {
    double& frequency = frequencies[i];
    frequency =
        std::pow(rope.theta, -2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim));
    if (!rope.divisors.empty()) frequency /= rope.divisors[i];
    if (rope.llama3) frequency *= Llama3Scale(frequency, *rope.llama3);
    if (rope.yarn) {
      const double divided =
          std::clamp((static_cast<double>(i) - range.low) / (range.high - range.low), 0.0, 1.0);
      frequency *= 1.0 - divided + divided / rope.yarn->factor;
    }
  }
  return frequencies;
}

RopeOf FindRope(const RopeStoreOp& op, const ModelConfig& config) {
  switch (op.rope) {
    case RopeUse::kMain:
      return {&config.rope, config.rotary_dim()};
    case RopeUse::kLocal:
      return {&*config.local_rope, config.rotary_dim()};
    case RopeUse::kNone:
      break;
  }
  return {&config.rope, 0};
}

RopeTable MakeRopeTable(const RopeConfig& rope, int64_t rotary_dim, int64_t positions) {
  const std::vector<double> frequencies = RopeFrequencies(rope, rotary_dim);
  const double cosines = rope.attention_factor, sines = rope.reversed ? -cosines : cosines;
  RopeTable table;
  for (int64_t position = 0; position < positions; ++position) {
    for (const double frequency : frequencies) {
      const double angle = static_cast<double>(position) * frequency;
      table.cos.push_back(static_cast<float>(cosines * std::cos(angle)));
      table.sin.push_back(static_cast<float>(sines * std::sin(angle)));
    }
  }
  return table;
}

}  // namespace sluice
