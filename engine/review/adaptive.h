// The review that finds the ladder for the recent traffic.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "engine/ladder/ladder.h"
#include "engine/options.h"
#include "engine/review/ladder_fitter.h"
#include "engine/schedule/cost_model.h"
#include "engine/schedule/traffic.h"

namespace sluice {

struct LadderReview {
  // nullptr if the present ladder stays.
  std::shared_ptr<const Ladder> ladder;
  LadderDiff diff{};
  int64_t evicted = 0;  // the buckets that go because of memory_limit_bytes alone
  // The share of the recent traffic's device time (captures paid) and of its mean latency that the
  // change would have saved: 1 - sqrt(share of the one that is left * share of the other that is
  // left). Both count, because a busy device turns saved time into smaller batches that start
  // earlier. It is that of the best candidate even if it is not adopted; 0 if there was none,
  // negative if buckets had to go.
  double gain = 0;
  double efficiency_before = 0;  // padding efficiency on the recent arrivals, replayed
  double efficiency_after = 0;
  std::string reason;  // a sentence for logs and `sluice buckets`
};

// Reviews a ladder on a copy of the traffic; takes milliseconds to a second, off the serving path.
// Candidates are fitted to the totals of the batches that the batch former makes of the recent
// arrivals, keep a coarse geometric floor and the exact maximum, respect max_buckets and
// memory_limit_bytes (evicting by least benefit per MiB), and are scored by running the batch
// former over the recent arrivals again. The best is adopted if it gains more than review.min_gain
// and than what a fit to so few arrivals always seems to gain, or anything at all with `force`.
// Strategies other than kAdaptive only lose buckets: to min_bucket_usage, once there are enough
// batches to tell, and to memory_limit_bytes. The candidates for a padded ladder have columns that
// pad the recent lengths least, at most max_buckets; usage and memory do not change it. Pure: the
// same arguments give the same review.
LadderReview ReviewLadder(const LadderOptions& ladder_options, const BatchOptions& batch_options,
                          const LadderLimits& limits, const Ladder& present, const CostModel& costs,
                          const Traffic& traffic, const PlanCost& plan_cost, bool force);

// Returns the review that adopts the ladder which `ladder_options` choose, whatever it gains: the
// strategy's own; under kAdaptive the one that a review makes of the strategy's for the recent
// traffic. The memory limit holds. The gain is over `present`, and 0 without traffic. Returns
// InvalidArgument that names an option out of its range.
absl::StatusOr<LadderReview> AdoptLadder(const LadderOptions& ladder_options,
                                         const BatchOptions& batch_options,
                                         const LadderLimits& limits, const Ladder& present,
                                         const CostModel& costs, const Traffic& traffic,
                                         const PlanCost& plan_cost);

// Returns a packed ladder for sequences of these lengths when nothing else is known, for `sluice
// fit` and a new deployment. It is fitted to what the batch former makes of a sample of them, in
// random order, at moderate and at high load; without `costs` a step costs as much as a sixteenth
// of the largest bucket's tokens. Requires `lengths` in [1, limits.max_tokens] and `ladder_options`
// that BuildLadder accepts. The cost of plans, usage and memory do not count.
Ladder FitLadder(std::span<const int32_t> lengths, const LadderOptions& ladder_options,
                 const BatchOptions& batch_options, const LadderLimits& limits,
                 const CostModel& costs);

}  // namespace sluice
