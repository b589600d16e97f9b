// Ladders for known batch totals, within the bounds of the options.
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

// Fits ladders to batch totals. Pure. `totals` ascend in tokens, are at most the maximum, and count
// batches.
class LadderFitter {
 public:
  // The references outlive the fitter. The seconds of `plan_cost` are a share of the traffic that
  // the totals stand for.
  LadderFitter(const LadderOptions& options, const LadderLimits& limits, const CostModel& law,
               const PlanCost& plan_cost)
      : options_(options), limits_(limits), law_(law), plan_cost_(plan_cost) {}

  // Returns the ladder of least device time for these batches, pruned. Below its largest bucket no
  // capacity is more than FloorRatio() times the one before it, or min_tokens for the first. So if
  // the traffic changes before the next review, it is padded by no more than that factor.
  Ladder Fit(std::span<const TokenWeight> totals) const;

  // Returns `ladder` without the buckets that serve less than min_bucket_usage of the batches, once
  // there are enough batches to tell, and without those of the least benefit per byte while all
  // need more than memory_limit_bytes; never without the largest.
  Ladder Prune(const Ladder& ladder, std::span<const TokenWeight> totals) const;

  // Returns the buckets of `ladder` that Prune removes for memory_limit_bytes alone.
  std::vector<Bucket> Evicted(const Ladder& ladder, std::span<const TokenWeight> totals) const;

  // Returns the padded `ladder` without the columns of the least benefit per byte for sequences of
  // these lengths, which ascend, while all need more than memory_limit_bytes. The widest column
  // loses its smallest rectangles if it alone needs more; the largest stays.
  Ladder PruneColumns(const Ladder& ladder, std::span<const TokenWeight> lengths) const;

 private:
  double FloorRatio() const;
  double PaddingCost(int32_t capacity) const;
  std::vector<int32_t> WithFloor(std::span<const int32_t> capacities) const;
  // A bucket and the weight of the batches that it serves.
  struct Rung {
    Bucket bucket;
    double weight;
    int64_t bytes;
  };
  std::vector<Rung> Rungs(const Ladder& ladder, std::span<const TokenWeight> totals) const;
  void DropUnused(std::vector<Rung>* rungs) const;
  // Drops the rungs of the least benefit per byte. `benefit` is that of a rung before the next one.
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
