// From the measurements of `sluice-bench buckets` to its report. Pure.
#pragma once

#include <string>
#include <vector>

#include "loadtest/bench/daemon/buckets_arm.h"
#include "loadtest/bench/daemon/rounds.h"
#include "nlohmann/json.hpp"

namespace sluice::loadtest {

// What was measured at one load.
struct LoadResult {
  double rate = 0;                             // requests per second; 0: closed loop
  std::vector<std::vector<Measurement>> arms;  // [arm][round]
};

struct BucketsResult {
  std::vector<ArmOptions> arms;  // the last one is compared with the groups of the others
  std::vector<LoadResult> loads;
};

// Tokens per second of the last arm / those of the best arm of `group`, round by round.
Spread ThroughputRatio(const BucketsResult& result, const LoadResult& load,
                       const std::string& group);

// The 99th percentile of the best arm of `group`, each arm's median over the rounds. 0 when none of
// them bears the load.
double BestP99(const BucketsResult& result, const LoadResult& load, const std::string& group);

// Over all loads and rounds of an arm.
nlohmann::json ArmJson(const BucketsResult& result, size_t arm);

// The last arm against each group.
nlohmann::json ComparisonJson(const BucketsResult& result);

// Markdown: throughput and efficiency at the peak, latency at each rate.
std::string BucketsTables(const BucketsResult& result);

}  // namespace sluice::loadtest
