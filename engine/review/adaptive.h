// The review that chooses a ladder for the recent traffic.
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
  // nullptr if the present ladder is kept.
  std::shared_ptr<const Ladder> ladder;
  LadderDiff diff{};
  int64_t evicted = 0;  // buckets dropped only because of memory_limit_bytes
  // The gain of the best candidate on the recent traffic, even if it is not adopted: 1 -
  // sqrt(device time after / before * mean latency after / before). Device time includes captures.
  // Both factors count, because a busy device uses saved time for smaller batches that start
  // earlier. 0 if there was no candidate; negative if buckets had to be dropped.
  double gain = 0;
  double bucket_fill_before = 0;  // bucket fill on the recent arrivals, replayed
  double bucket_fill_after = 0;
  std::string reason;  // a sentence for logs and `sluice buckets`
};

// Reviews a ladder on a copy of the traffic. Takes milliseconds to a second, off the serving path.
// Candidates are fitted to the totals of the batches that the batch former makes of the recent
// arrivals. They keep a coarse geometric floor and the exact maximum, and respect max_buckets and
// memory_limit_bytes (dropping the buckets with the least benefit per MiB). They are scored by
// running the batch former over the recent arrivals again. The best candidate is adopted if its
// gain exceeds review.min_gain plus a margin for chance, or with `force` if it gains anything.
// Strategies other than kAdaptive only drop buckets: because of min_bucket_usage, once there are
// enough batches, and because of memory_limit_bytes. For a padded ladder, the candidates have at
// most max_buckets columns with the least padding for the recent lengths; columns are dropped only
// because of memory_limit_bytes. If LadderMatters is false, no ladder is searched for and the gain
// is 0: buckets are only dropped. Pure: the same arguments give the same review.
LadderReview ReviewLadder(const LadderOptions& ladder_options, const BatchOptions& batch_options,
                          const LadderLimits& limits, const Ladder& present, const CostModel& costs,
                          const Traffic& traffic, const PlanCost& plan_cost, bool force);

// Returns the review that adopts the ladder chosen by `ladder_options`, for any gain: the
// strategy's own ladder or, for kAdaptive, the result of reviewing it for the recent traffic. The
// memory limit applies. The gain is relative to `present`, and 0 without traffic. Returns
// InvalidArgument, which names the option, if an option is out of range.
absl::StatusOr<LadderReview> AdoptLadder(const LadderOptions& ladder_options,
                                         const BatchOptions& batch_options,
                                         const LadderLimits& limits, const Ladder& present,
                                         const CostModel& costs, const Traffic& traffic,
                                         const PlanCost& plan_cost);

// Returns a packed ladder for sequences of these lengths if nothing else is known, for `sluice fit`
// and a new deployment. It is fitted to the batches that the batch former makes of a sample of the
// lengths, in random order, at moderate and high load. Without `costs`, the fixed cost of a step
// equals the cost of a sixteenth of the largest bucket's tokens. Requires `lengths` in [1,
// limits.max_tokens] and `ladder_options` that BuildLadder accepts. The cost of plans, usage and
// memory are ignored.
Ladder FitLadder(std::span<const int32_t> lengths, const LadderOptions& ladder_options,
                 const BatchOptions& batch_options, const LadderLimits& limits,
                 const CostModel& costs);

}  // namespace sluice
