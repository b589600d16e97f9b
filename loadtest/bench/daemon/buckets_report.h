// Makes the report of `sluice-bench buckets` from its measurements. The functions are pure.
#pragma once

#include <string>
#include <vector>

#include "loadtest/bench/daemon/buckets_arm.h"
#include "loadtest/bench/daemon/rounds.h"
#include "nlohmann/json.hpp"

namespace sluice::loadtest {

// The measurements at one load.
struct LoadResult {
  double rate = 0;                             // requests per second; 0 for a closed loop
  std::vector<std::vector<Measurement>> arms;  // [arm][round]
};

struct BucketsResult {
  std::vector<ArmOptions> arms;  // the last one is compared with the groups of the others
  std::vector<LoadResult> loads;
};

// Returns the tokens per second of the last arm divided by the best arm's of `group`, by round.
Spread ThroughputRatio(const BucketsResult& result, const LoadResult& load,
                       const std::string& group);

// Returns the 99th percentile of the best arm of `group`, where each arm counts with its median
// over the rounds. Returns 0 if no arm can carry the load.
double BestP99(const BucketsResult& result, const LoadResult& load, const std::string& group);

// Returns the figures of an arm over all loads and rounds.
nlohmann::json ArmJson(const BucketsResult& result, size_t arm);

// Returns the comparison of the last arm with each group.
nlohmann::json ComparisonJson(const BucketsResult& result);

// Returns Markdown tables: throughput and efficiency at the peak, and latency at each rate.
std::string BucketsTables(const BucketsResult& result);

}  // namespace sluice::loadtest
