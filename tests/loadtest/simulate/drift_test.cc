#include "loadtest/simulate/drift.h"

#include <random>
#include <span>
#include <vector>

#include "gtest/gtest.h"
#include "loadtest/simulate/workload.h"

namespace sluice::loadtest {
namespace {

ExperimentOptions Small() {
  ExperimentOptions options;
  options.batch.max_batch_tokens = 16384;
  options.ladder.review.half_life_us = 200'000;
  return options;
}

TEST(RunDrift, AdaptiveFollowsWithFewCaptures) {
  DriftOptions options;
  options.count = 45'000;
  options.seeds = 1;
  options.experiment = Small();
  const auto rows = RunDrift(options);
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->size(), 3u);
  double captures = 0;
  for (const nlohmann::json& row : *rows) {
    EXPECT_GT(row["share_of_optimum"].get<double>(), 0.95) << row;
    captures += row["captures"].get<double>();
  }
  EXPECT_LE(captures, 7 * LadderLimits().max_buckets);
  EXPECT_GE((*rows)[1]["changes"].get<double>(), 1);
}

// The traffic does not change after the ladder has adapted to it.
TEST(RunPhases, StationaryTrafficDoesNotChangeTheLadder) {
  for (const uint64_t seed : {1, 2}) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    ExperimentOptions options = Small();
    options.ladder.strategy = StrategyKind::kAdaptive;
    std::vector<std::vector<Arrival>> phases;
    nanoseconds offset(0);
    for (int phase = 0; phase < 2; ++phase) {
      const std::vector<int32_t> lengths = MakeLengths(Lengths::kLogNormal, 15'000, 8192, &random);
      phases.push_back(
          MakeArrivals(Process::kPoisson, lengths, 0.5 * options.FullTokensPerSecond(), &random));
      for (Arrival& arrival : phases.back()) arrival.at += offset;
      offset = phases.back().back().at.time_since_epoch();
    }
    const auto measured = RunPhases(options, phases);
    ASSERT_TRUE(measured.ok()) << measured.status();
    EXPECT_GE((*measured)[0].changes, 1);
    EXPECT_EQ((*measured)[1].changes, 0);
    EXPECT_EQ((*measured)[1].captures, 0);
  }
}

}  // namespace
}  // namespace sluice::loadtest
