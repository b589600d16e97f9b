// Ratios that describe buckets, computed from counts of batches. Metrics and the admin API compute
// them only here. The functions are pure.
#pragma once

#include <span>
#include <string>
#include <vector>

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
  double row_fill = 0;             // sequences / bucket sequences
  // Bytes of activations for the buckets of all batches / bytes for their exact sizes, - 1.
  double memory_overhead = 0;
};
BucketSummary Summarize(std::span<const BucketStats> buckets);

// Returns at most `count` (>= 1) entries made of groups of about equal size: neighbours are merged
// under the largest of them, with the sum of their weights.
std::vector<TokenWeight> Coarsen(std::span<const TokenWeight> entries, size_t count);

// Returns the smallest size such that sizes up to it have at least `share` of the weight, or 0 if
// there are no entries. Entries ascend.
int32_t WeightedQuantile(std::span<const TokenWeight> entries, double share);

}  // namespace sluice
