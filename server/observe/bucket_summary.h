// What counts of batches say about buckets: the one place where the ratios of metrics and of the
// admin API are computed. Pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/engine_stats.h"

namespace sluice {

// "TOKENSxROWS" of a packed bucket, "ROWSxPOSITIONSp" of a padded one.
std::string BucketLabel(const Bucket& bucket);

// All are 0 while no batch was served.
struct BucketSummary {
  int64_t batches = 0;
  double hit_rate = 0;             // batches served by the ladder's own choice / batches
  double padding_efficiency = 0;   // useful / bucket tokens
  double executed_efficiency = 0;  // useful / computed tokens
  double row_efficiency = 0;       // sequences / bucket sequences
  // Activations grow with the tokens that a plan is laid out for, so that a batch in a bucket takes
  // bucket tokens / useful tokens as much as in a plan of its exact size: this ratio over all
  // batches, - 1.
  double memory_overhead = 0;
};
BucketSummary Summarize(std::span<const BucketStats> buckets);

// At most `count` (>= 1) entries of about equal ranks: neighbours are merged, their weights added,
// under the largest of them.
std::vector<DecayedHistogram::Entry> Coarsen(std::span<const DecayedHistogram::Entry> entries,
                                             size_t count);

}  // namespace sluice
