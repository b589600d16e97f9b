#include "engine/ladder/strategy.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "engine/option_specs.h"

namespace sluice {
namespace {

constexpr double kMemoryOptimalRatio = 1.5;
// The maximum number of steps per octave for hardware_aware.
constexpr int32_t kMaxStepsPerOctave = 64;

absl::StatusOr<std::vector<int32_t>> FixedCapacities(const std::vector<int32_t>& capacities,
                                                     const LadderLimits& limits) {
  int32_t previous = 0;
  for (const int32_t tokens : capacities) {
    if (tokens <= previous || tokens > limits.max_tokens) {
      return absl::InvalidArgumentError(absl::StrCat("fixed_tokens has ", tokens, " after ",
                                                     previous, "; values must ascend within [1, ",
                                                     limits.max_tokens, "]"));
    }
    previous = tokens;
  }
  return capacities;
}

// A `wanted_cap` of 0 means no cap.
absl::StatusOr<std::vector<int32_t>> GeometricCapacities(double ratio, int32_t min_tokens,
                                                         int32_t wanted_cap,
                                                         const LadderLimits& limits) {
  const OptionSpec<LadderOptions>& spec = OptionSpecOf<LadderOptions>("ratio");
  if (!spec.real->Contains(ratio)) {
    return absl::InvalidArgumentError(
        absl::StrCat("ratio is ", ratio, ", expected ", spec.expected));
  }
  if (wanted_cap != 0 && wanted_cap < min_tokens) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cap_tokens is ", wanted_cap, ", must be 0 or at least min_tokens, which is ", min_tokens));
  }
  const int32_t cap = wanted_cap == 0 ? limits.max_tokens : std::min(wanted_cap, limits.max_tokens);
  const int32_t floor = std::min(min_tokens, cap);
  const auto next = [&](int32_t tokens) {
    if (ratio == 2.0) return PowerOfTwoCapacity(tokens + 1, floor, cap);
    const double scaled = std::max(std::ceil(tokens * ratio), tokens + 1.0);
    return static_cast<int32_t>(std::min<double>(scaled, cap));
  };
  std::vector<int32_t> capacities;
  for (int32_t tokens = floor; tokens < cap; tokens = next(tokens)) capacities.push_back(tokens);
  capacities.push_back(cap);
  return capacities;
}

// Divides each octave into the same number of equal steps, so that the relative waste is even over
// the range, and rounds up to numbers of rows that the device computes exactly. The number of steps
// is the largest power of two that max_buckets allows.
std::vector<int32_t> HardwareAwareCapacities(const LadderOptions& options,
                                             const LadderLimits& limits) {
  std::vector<int32_t> capacities;
  for (int32_t steps = kMaxStepsPerOctave; steps >= 1; steps /= 2) {
    capacities.clear();
    int32_t tokens = limits.rows.RoundUp(std::min(options.min_tokens, limits.max_tokens));
    while (tokens < limits.max_tokens) {
      capacities.push_back(tokens);
      const auto octave = static_cast<int32_t>(std::bit_floor(static_cast<uint32_t>(tokens)));
      tokens = limits.rows.RoundUp(tokens + std::max(octave / steps, 1));
    }
    // One bucket is left for the exact maximum.
    if (std::ssize(capacities) < limits.MaxBuckets(options)) break;
  }
  return capacities;
}

}  // namespace

int32_t PowerOfTwoCapacity(int32_t tokens, int32_t floor, int32_t cap) {
  const int32_t power = std::bit_ceil(static_cast<uint32_t>(tokens));
  return std::clamp(power, floor, cap);
}

absl::StatusOr<std::vector<int32_t>> Capacities(const LadderOptions& options,
                                                const LadderLimits& limits) {
  switch (options.strategy) {
    case StrategyKind::kFixed:
      return FixedCapacities(options.fixed_tokens, limits);
    case StrategyKind::kGeometric:
      return GeometricCapacities(options.ratio, options.min_tokens, options.cap_tokens, limits);
    case StrategyKind::kAdaptive: {
      SLUICE_ASSIGN_OR_RETURN(
          std::vector<int32_t> capacities,
          GeometricCapacities(options.ratio, options.min_tokens, options.cap_tokens, limits));
      for (int32_t& tokens : capacities) tokens = limits.rows.RoundUp(tokens);
      return capacities;
    }
    case StrategyKind::kHardwareAware:
      return HardwareAwareCapacities(options, limits);
    case StrategyKind::kMemoryOptimal:
      return GeometricCapacities(kMemoryOptimalRatio, options.min_tokens, /*wanted_cap=*/0, limits);
  }
  SLUICE_CHECK(false && "unknown strategy");
}

}  // namespace sluice
