// Which ladder the recent traffic deserves.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "engine/ladder/ladder.h"
#include "engine/options.h"
#include "engine/schedule/cost_model.h"
#include "engine/schedule/traffic.h"

namespace sluice {

// What a bucket costs to have.
struct PlanPrices {
  std::function<double(const Bucket&)> capture_seconds;  // to prepare it once more
  std::function<int64_t(const Bucket&)> memory_bytes;
};

struct LadderReview {
  // nullptr: the present ladder stays.
  std::shared_ptr<const Ladder> ladder;
  LadderDiff diff{};
  // Share that the change would have saved of the recent traffic's device time (captures paid) and of
  // its mean latency: 1 - sqrt(what is left of one * what is left of the other). Both count, because
  // a busy device turns saved time into smaller batches that start earlier. Of the best candidate even
  // where it is not adopted; 0 when there was none, negative when buckets had to go.
  double gain = 0;
  double efficiency_before = 0;  // padding efficiency on the recent arrivals, replayed
  double efficiency_after = 0;
  std::string reason;  // one sentence for logs and `sluice buckets`
};

// Reviews a packed ladder on a copy of the traffic; takes milliseconds to a second, off the serving
// path. Candidates are fitted to the totals of the batches that the batch former makes of the recent
// arrivals, keep a coarse geometric floor and the exact maximum, respect max_buckets and
// memory_limit_bytes (evicting by least benefit per MiB), and are scored by running the batch former
// over the recent arrivals again; the best is adopted when it gains more than review.min_gain and what
// a fit to so few arrivals always seems to gain, or anything at all when `force`. Other strategies than
// kAdaptive only lose buckets: to min_bucket_usage, once the batches are enough to tell, and to
// memory_limit_bytes. Pure: the same arguments give the same review.
LadderReview ReviewLadder(const LadderOptions& ladder_options, const BatchOptions& batch_options,
                          const LadderLimits& limits, const Ladder& present, const CostModel& costs,
                          const Traffic& traffic, const PlanPrices& prices, bool force);

// A packed ladder for sequences of these lengths when nothing else is known: for `sluice fit` and a
// new deployment. Fitted to what the batch former makes of a sample of them, in random order, at
// moderate and at high load; without `costs` a step costs as much as a sixteenth of the largest
// bucket's tokens. `lengths` are in [1, limits.max_tokens]; prices, usage and memory do not count.
// `ladder_options` are such that BuildLadder takes them.
Ladder FitLadder(std::span<const int32_t> lengths, const LadderOptions& ladder_options,
                 const BatchOptions& batch_options, const LadderLimits& limits,
                 const CostModel& costs);

}  // namespace sluice
