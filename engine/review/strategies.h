// Tries every strategy on known arrivals, side by side.
#pragma once

#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "engine/engine_stats.h"
#include "engine/ladder/ladder.h"
#include "engine/options.h"
#include "engine/review/adaptive.h"
#include "engine/schedule/cost_model.h"
#include "engine/schedule/traffic.h"

namespace sluice {

// The least number of arrivals to try strategies on.
inline constexpr int64_t kMinArrivals = 100;

// The conditions under which strategies are tried. `ladder` has the values that a strategy does not
// determine itself: max_buckets, min_tokens, ratio.
struct StrategyContest {
  LadderOptions ladder{};
  BatchOptions batch{};
  LadderLimits limits{};
  CostModel costs{};  // of steps; its law alone counts
  PlanCost plan_cost{};
};

// Returns StrategyTrials::best; of several that take the same memory the one that gains most.
// Requires at least one trial. Pure.
std::string BestTrial(const StrategyTrials& trials);

// Runs the scheduler on virtual time over the second half of `arrivals`, which ascend in time,
// under each strategy, within memory_limit_bytes; the adaptive ones fit their ladder to the first
// half before. The first trial
// is `present`, or if that is nullptr a single bucket. Returns FailedPrecondition if there are
// fewer than kMinArrivals, if no step was measured, or if the policy has no choice of ladder.
// Pure.
absl::StatusOr<StrategyTrials> TryStrategies(const StrategyContest& contest,
                                             std::span<const Arrival> arrivals,
                                             const Ladder* present);

}  // namespace sluice
