// Scheduling values that other parts report: priorities, reasons for decisions, the arrival rate,
// measured costs, changes of a ladder.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/enum_names.h"
#include "engine/bucket.h"
#include "engine/computed_rows.h"
#include "engine/expected_experts.h"

namespace sluice {

// Priority levels run from 1, the most urgent, to kPriorityLevels. In the protocol 0 means the
// default.
inline constexpr int kPriorityLevels = 3;
inline constexpr int kDefaultPriority = 2;

// The reason to launch a batch now.
enum class Trigger {
  kFull,      // more sequences are waiting than fit, or the largest bucket is full
  kDelay,     // a sequence has waited for max_queue_delay
  kDeadline,  // a sequence would miss its deadline if it waited longer
  kIdle,      // waiting would gain nothing
  kDrain,     // the model is draining
};
constexpr auto EnumNamesOf(Trigger) {
  using enum Trigger;
  return EnumNameTable<Trigger>({{kFull, "full"},
                                 {kDelay, "delay"},
                                 {kDeadline, "deadline"},
                                 {kIdle, "idle"},
                                 {kDrain, "drain"}});
}

// The reason not to launch a batch.
enum class WaitReason {
  kEmpty,         // nothing waits
  kMoreRequests,  // the expected arrivals save more device time than the delay costs
};
constexpr auto EnumNamesOf(WaitReason) {
  using enum WaitReason;
  return EnumNameTable<WaitReason>({{kEmpty, "empty"}, {kMoreRequests, "more_requests"}});
}

// The rate at which sequences arrive: a decayed estimate, all 0 if unknown.
struct ArrivalRate {
  double sequences_per_second = 0;
  double tokens_per_second = 0;
};

// An entry of a decayed histogram over token counts.
struct TokenWeight {
  int32_t tokens;
  double weight;  // the decayed count, as of the latest addition
};

// The number of coefficients in the cost model's law.
inline constexpr int kCostTerms = 7;

// The data of the cost model about one bucket.
struct BucketCost {
  Bucket bucket{};
  double correction = 1;    // measured time of its steps divided by the time from the law
  double weight = 0;        // the decayed number of observations
  double mean_seconds = 0;  // the decayed mean over all of its steps
};

// All data of the cost model; see CostModel in engine/schedule/cost_model.h. Sums are decayed.
struct CostState {
  ComputedRows rows = ComputedRows::OfBucket();
  ExpertCounts experts = {};
  double law[kCostTerms] = {};                  // in the order of the formula, seconds per unit
  double moments[kCostTerms][kCostTerms] = {};  // sum of x x' / y^2
  double products[kCostTerms] = {};             // sum of x / y
  double totals[kCostTerms] = {};               // sum of x
  std::vector<BucketCost> buckets{};            // ascending
};

// Returns the device time that the law of `costs` gives for rows that were computed without a
// useful token: the difference of the law for these steps, and the law for steps in buckets of
// exactly the useful tokens. In a packed step such rows are rows of the bucket. In a padded one
// they are also tokens of the batch.
inline double EmptyRowSeconds(const CostState& costs, bool padded, int64_t useful_tokens,
                              int64_t computed_tokens) {
  const double per_row = costs.law[1] + (padded ? costs.law[2] : 0);  // bucket row, token
  return per_row * static_cast<double>(std::max<int64_t>(computed_tokens - useful_tokens, 0));
}

// The difference of two packed ladders. The buckets in both ladders divide the sizes into ranges.
// Within a range, p old buckets (only in the former ladder) are replaced by q new buckets (only in
// the latter):
//   added    the q new buckets
//   removed  the p old buckets, if a bucket of both ladders serves their sizes (q = 0) or each was
//            moved (q = p)
//   merged   the p old buckets, if fewer buckets serve their sizes (0 < q < p)
//   split    the p old buckets, if more buckets serve their sizes (p < q)
// Every bucket that is not in both is in exactly one of the four lists. All ascend.
struct LadderDiff {
  std::vector<Bucket> added;                   // of the latter ladder
  std::vector<Bucket> removed, merged, split;  // of the former ladder
  bool empty() const { return added.empty() && removed.empty() && merged.empty() && split.empty(); }
};

}  // namespace sluice
