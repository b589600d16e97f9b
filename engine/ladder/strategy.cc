#include "engine/ladder/strategy.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "engine/option_specs.h"

namespace sluice {
namespace {

constexpr double kMemoryOptimalRatio = 1.5;
// The most steps that hardware_aware divides an octave into.
constexpr int32_t kMaxStepsPerOctave = 64;

int32_t RoundUp(int64_t value, int32_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

class FixedStrategy : public LadderStrategy {
 public:
  explicit FixedStrategy(std::vector<int32_t> tokens) : tokens_(std::move(tokens)) {}

  absl::StatusOr<std::vector<int32_t>> Capacities(const LadderLimits& limits) const override {
    int32_t previous = 0;
    for (int32_t tokens : tokens_) {
      if (tokens <= previous || tokens > limits.max_tokens) {
        return absl::InvalidArgumentError(absl::StrCat("fixed_tokens has ", tokens, " after ",
                                                       previous, "; values must ascend within [1, ",
                                                       limits.max_tokens, "]"));
      }
      previous = tokens;
    }
    return tokens_;
  }

 private:
  const std::vector<int32_t> tokens_;
};

class GeometricStrategy : public LadderStrategy {
 public:
  // A `cap` of 0 means none.
  GeometricStrategy(double ratio, int32_t floor, int32_t cap)
      : ratio_(ratio), floor_(floor), cap_(cap) {}

  absl::StatusOr<std::vector<int32_t>> Capacities(const LadderLimits& limits) const override {
    const OptionSpec<LadderOptions>& spec = OptionSpecOf<LadderOptions>("ratio");
    if (!spec.real->Contains(ratio_)) {
      return absl::InvalidArgumentError(
          absl::StrCat("ratio is ", ratio_, ", expected ", spec.expected));
    }
    if (cap_ != 0 && cap_ < floor_) {
      return absl::InvalidArgumentError(absl::StrCat(
          "cap_tokens is ", cap_, ", must be 0 or at least min_tokens, which is ", floor_));
    }
    const int32_t cap = cap_ == 0 ? limits.max_tokens : std::min(cap_, limits.max_tokens);
    const int32_t floor = std::min(floor_, cap);
    std::vector<int32_t> capacities;
    for (int32_t tokens = floor; tokens < cap; tokens = Next(tokens, floor, cap)) {
      capacities.push_back(tokens);
    }
    capacities.push_back(cap);
    return capacities;
  }

 private:
  int32_t Next(int32_t tokens, int32_t floor, int32_t cap) const {
    if (ratio_ == 2.0) return PowerOfTwoCapacity(tokens + 1, floor, cap);
    const double next = std::max(std::ceil(tokens * ratio_), tokens + 1.0);
    return static_cast<int32_t>(std::min<double>(next, cap));
  }

  const double ratio_;
  const int32_t floor_;
  const int32_t cap_;
};

// Multiples of the tile. Each octave is divided into as many equal steps, a power of two, as
// max_buckets allows, so that the relative waste is even over the range.
class HardwareAwareStrategy : public LadderStrategy {
 public:
  HardwareAwareStrategy(int32_t floor, int32_t max_buckets)
      : floor_(floor), max_buckets_(max_buckets) {}

  absl::StatusOr<std::vector<int32_t>> Capacities(const LadderLimits& limits) const override {
    std::vector<int32_t> capacities;
    for (int32_t steps = kMaxStepsPerOctave; steps >= 1; steps /= 2) {
      capacities = WithSteps(limits, steps);
      if (capacities.size() < max_buckets_) break;  // leaves one bucket for the exact maximum
    }
    return capacities;
  }

 private:
  std::vector<int32_t> WithSteps(const LadderLimits& limits, int32_t steps_per_octave) const {
    std::vector<int32_t> capacities;
    int64_t tokens = RoundUp(std::min(floor_, limits.max_tokens), limits.tile_tokens);
    while (tokens < limits.max_tokens) {
      capacities.push_back(tokens);
      const int64_t octave = std::bit_floor(static_cast<uint64_t>(tokens));
      tokens += RoundUp(std::max<int64_t>(octave / steps_per_octave, 1), limits.tile_tokens);
    }
    return capacities;
  }

  const int32_t floor_;
  const size_t max_buckets_;
};

}  // namespace

int32_t PowerOfTwoCapacity(int32_t tokens, int32_t floor, int32_t cap) {
  const int32_t power = std::bit_ceil(static_cast<uint32_t>(tokens));
  return std::clamp(power, floor, cap);
}

std::unique_ptr<LadderStrategy> MakeLadderStrategy(const LadderOptions& options) {
  switch (options.strategy) {
    case StrategyKind::kFixed:
      return std::make_unique<FixedStrategy>(options.fixed_tokens);
    case StrategyKind::kGeometric:
    case StrategyKind::kAdaptive:
      return std::make_unique<GeometricStrategy>(options.ratio, options.min_tokens,
                                                 options.cap_tokens);
    case StrategyKind::kHardwareAware:
      return std::make_unique<HardwareAwareStrategy>(options.min_tokens, options.max_buckets);
    case StrategyKind::kMemoryOptimal:
      return std::make_unique<GeometricStrategy>(kMemoryOptimalRatio, options.min_tokens,
                                                 /*cap=*/0);
  }
  SLUICE_CHECK(false && "unknown strategy");
}

}  // namespace sluice
