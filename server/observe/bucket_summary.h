// Ratios that describe buckets, computed from counts of batches. Metrics and the admin API compute
// them only here. The functions are pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/engine_stats.h"

namespace sluice {

// Returns "TOKENSxROWS" for a packed bucket, "ROWSxPOSITIONSp" for a padded one.
std::string BucketLabel(const Bucket& bucket);

// The ratios. All are 0 before the first batch.
struct BucketSummary {
  int64_t batches = 0;
  double hit_rate = 0;             // batches served by the ladder's own choice / batches
  double bucket_fill = 0;          // useful / bucket tokens
  double executed_efficiency = 0;  // useful / computed tokens
  // Bytes of activations for the buckets of all batches / bytes for their exact sizes, - 1.
  double memory_overhead = 0;
};
BucketSummary Summarize(std::span<const BucketStats> buckets);

// The counts of batches in an interval of time.
struct BatchCounts {
  int64_t batches = 0;
  int64_t hits = 0;  // batches served by the ladder's own choice
  int64_t sequences = 0;
  int64_t useful_tokens = 0, computed_tokens = 0, bucket_tokens = 0;
  nanoseconds replay{0};  // the time of the batches on the device

  void Add(const BatchCounts& other);
};
// Returns the counts since the model was loaded.
BatchCounts CountsOf(const BucketStats& bucket);
// Returns `after` minus `before`, and 0 for each count that has fallen.
BatchCounts Since(const BatchCounts& before, const BatchCounts& after);

// The ratios of BucketSummary, over an interval. All are 0 without batches.
struct BatchRatios {
  double hit_rate = 0, bucket_fill = 0, executed_efficiency = 0;
};
BatchRatios RatiosOf(const BatchCounts& counts);

// The use of the device by a model in an interval. All are 0 without batches.
struct DeviceUse {
  double busy_share = 0;  // the time with a step of the model on the device / the interval
  // The time that computed rows without a useful token took, by the measured costs of steps (see
  // EmptyRowSeconds) / the time with a step on the device.
  double wasted_share = 0;
  // Useful tokens per second / ModelStats::device_tokens_per_second.
  double useful_share = 0;
};
DeviceUse UseOf(const BatchCounts& counts, nanoseconds interval, const ModelStats& stats);

// Returns at most `count` (>= 1) entries made of groups of about equal size: neighbours are merged
// under the largest of them, with the sum of their weights.
std::vector<TokenWeight> Coarsen(std::span<const TokenWeight> entries, size_t count);

// Returns the smallest size such that sizes up to it have at least `share` of the weight, or 0 if
// there are no entries. Entries ascend.
int32_t WeightedQuantile(std::span<const TokenWeight> entries, double share);

}  // namespace sluice
