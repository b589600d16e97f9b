// Fits ladders to known batch totals, within the limits of the options.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "engine/ladder/ladder.h"
#include "engine/options.h"
#include "engine/review/fit.h"
#include "engine/schedule/cost_model.h"

namespace sluice {

// The cost of having a bucket.
struct PlanCost {
  std::function<double(const Bucket&)> capture_seconds;  // to prepare it again
  std::function<int64_t(const Bucket&)> memory_bytes;
};

// Fits ladders to batch totals. Pure. `totals` are histograms of batches by tokens; they ascend in
// tokens and are at most the maximum.
class LadderFitter {
 public:
  // The references must outlive the fitter. The seconds of `plan_cost` are the part of the cost
  // charged to the traffic in the totals.
  LadderFitter(const LadderOptions& options, const LadderLimits& limits, const CostModel& law,
               const PlanCost& plan_cost)
      : options_(options), limits_(limits), law_(law), plan_cost_(plan_cost) {}

  // Returns the ladder with the least device time for these batches, pruned. All capacities but the
  // maximum are numbers of rows that the device computes exactly (ComputedRows::Exact). Below its
  // largest bucket, each capacity is at most FloorRatio() times the previous one (min_tokens for
  // the first). If the traffic changes before the next review, padding is therefore limited to this
  // factor.
  Ladder Fit(std::span<const TokenWeight> totals) const;

  // Returns `ladder` without the buckets that serve less than min_bucket_usage of the batches, once
  // there are enough batches. While the ladder needs more than memory_limit_bytes, the buckets with
  // the least benefit per byte are removed too. The largest bucket is never removed.
  Ladder Prune(const Ladder& ladder, std::span<const TokenWeight> totals) const;

  // Returns the buckets of `ladder` that Prune removes only because of memory_limit_bytes.
  std::vector<Bucket> Evicted(const Ladder& ladder, std::span<const TokenWeight> totals) const;

  // Returns the padded `ladder` without the columns that do not fit memory_limit_bytes. First
  // removes the columns with the least benefit per byte for sequences of these lengths, which
  // ascend. If the widest column needs more by itself, it loses its smallest rectangles; the
  // largest is kept.
  Ladder PruneColumns(const Ladder& ladder, std::span<const TokenWeight> lengths) const;

 private:
  double FloorRatio() const;
  // Returns the smallest capacity for `tokens` that the device computes exactly, or the maximum.
  int32_t Capacity(int32_t tokens) const;
  double PaddingCost(int32_t capacity) const;
  std::vector<int32_t> WithFloor(std::span<const int32_t> capacities) const;
  // A bucket and the total weight of its batches.
  struct Rung {
    Bucket bucket;
    double weight;
    int64_t bytes;
  };
  std::vector<Rung> Rungs(const Ladder& ladder, std::span<const TokenWeight> totals) const;
  void DropUnused(std::vector<Rung>* rungs) const;
  // Drops the rungs with the least benefit per byte. `benefit` is the benefit of a rung, given the
  // next one.
  void DropToMemory(absl::FunctionRef<double(const Rung&, const Rung& next)> benefit,
                    std::vector<Rung>* rungs) const;
  void DropBucketsToMemory(std::vector<Rung>* rungs) const;

  const LadderOptions& options_;
  const LadderLimits& limits_;
  const CostModel& law_;
  const PlanCost& plan_cost_;
};

// Returns the mean of several histograms as one histogram.
std::vector<TokenWeight> Pool(std::span<const std::vector<TokenWeight>> histograms);

}  // namespace sluice
