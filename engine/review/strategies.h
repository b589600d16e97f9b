// Compares all strategies on known arrivals.
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

// The minimum number of arrivals for a comparison of strategies.
inline constexpr int64_t kMinArrivals = 100;

// The conditions of the comparison. `ladder` has the values that a strategy does not determine
// itself: max_buckets, min_tokens, ratio.
struct StrategyContest {
  LadderOptions ladder{};
  BatchOptions batch{};
  LadderLimits limits{};
  // Of steps. Only the law is used, unless LadderMatters is false.
  CostModel costs{};
  PlanCost plan_cost{};
};

// Returns StrategyTrials::best. If several trials take the same memory, the one with the largest
// gain is chosen. Requires at least one trial. Pure.
std::string BestTrial(const StrategyTrials& trials);

// Runs the scheduler on virtual time over the second half of `arrivals`, which ascend in time, once
// for each strategy, within memory_limit_bytes. Adaptive strategies first fit their ladder to the
// first half. The first trial is `present` or, if that is nullptr, a single bucket. Returns
// FailedPrecondition if there are fewer than kMinArrivals arrivals, if no step was measured, or if
// the policy has no choice of ladder. If LadderMatters is false, there is only the first trial.
// Pure.
absl::StatusOr<StrategyTrials> TryStrategies(const StrategyContest& contest,
                                             std::span<const Arrival> arrivals,
                                             const Ladder* present);

}  // namespace sluice
