#include "engine/schedule/carried_costs.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace sluice {
namespace {

// Returns costs of 1 s for each step, times a correction for each of these buckets.
CostModel Corrected(const ComputedRows& rows, const std::vector<std::pair<int, double>>& buckets) {
  CostState state{.rows = rows};
  state.law[0] = 1;
  for (const auto& [tokens, correction] : buckets) {
    state.buckets.push_back({.bucket = {.tokens = tokens, .sequences = tokens},
                             .correction = correction,
                             .weight = 1,
                             .mean_seconds = 1});
  }
  CostModel costs;
  costs.Restore(state);
  return costs;
}

StepShape Step(int32_t bucket_tokens, int32_t tokens) {
  return {.bucket = {.tokens = bucket_tokens, .sequences = bucket_tokens},
          .computed_tokens = tokens};
}

TEST(CarriedCosts, CostTheSameOnEveryLadderIfTheDeviceComputesOnlyTheBatch) {
  const CostModel recorded = Corrected(ComputedRows::OfBatch(), {{16, 2}, {64, 3}, {256, 1.5}});
  const CarriedCosts costs(recorded);
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 1000; ++i) {
    const auto tokens = static_cast<int32_t>(1 + random() % 256);
    const int32_t bucket = tokens <= 16 ? 16 : tokens <= 64 ? 64 : 256;
    const double expected = recorded.Estimate(Step(bucket, tokens));
    const auto other = static_cast<int32_t>(tokens + random() % 1000);
    EXPECT_DOUBLE_EQ(costs(Step(bucket, tokens)), expected) << tokens;
    EXPECT_DOUBLE_EQ(costs(Step(other, tokens)), expected) << tokens << " in " << other;
  }
  EXPECT_DOUBLE_EQ(costs(Step(999, 999)), 1.5) << "above the measured buckets";
}

TEST(CarriedCosts, InterpolateTheCorrectionOfABucketThatDidNotRun) {
  const CarriedCosts costs(Corrected(ComputedRows::OfBucket(), {{16, 2}, {64, 8}}));
  EXPECT_DOUBLE_EQ(costs(Step(16, 1)), 2) << "its own, however few tokens it computes";
  EXPECT_DOUBLE_EQ(costs(Step(64, 1)), 8);
  EXPECT_NEAR(costs(Step(32, 1)), 4, 1e-12);
  EXPECT_DOUBLE_EQ(costs(Step(8, 8)), 2);
  EXPECT_DOUBLE_EQ(costs(Step(128, 8)), 8);
}

TEST(CarriedCosts, AreTheLawIfNoBucketRan) {
  EXPECT_DOUBLE_EQ(CarriedCosts(Corrected(ComputedRows::OfBatch(), {}))(Step(8, 8)), 1);
  const CarriedCosts costs(Corrected(ComputedRows::OfBatch(), {{16, 2}}));
  EXPECT_DOUBLE_EQ(costs({.bucket = Bucket::Padded(2, 8), .computed_tokens = 16}), 1)
      << "a padded bucket that did not run";
}

}  // namespace
}  // namespace sluice
