#include "engine/schedule/cost_model.h"

#include "gtest/gtest.h"

namespace sluice {
namespace {

constexpr Bucket kSmall{.tokens = 16, .sequences = 16};
constexpr Bucket kMiddle{.tokens = 64, .sequences = 32};
constexpr Bucket kLarge{.tokens = 256, .sequences = 32};

TEST(CostModel, KnowsNothingAtFirst) {
  const CostModel costs;
  EXPECT_EQ(costs.Estimate({.bucket = kSmall}), 0);
  EXPECT_EQ(costs.EstimateDrain(1000, kLarge), 0);
}

TEST(CostModel, TheFirstStepIsTheSeedAndLaterOnesMoveIt) {
  CostModel costs;
  costs.Observe({.bucket = kSmall}, 8.0);
  EXPECT_DOUBLE_EQ(costs.Estimate({.bucket = kSmall}), 8.0);
  costs.Observe({.bucket = kSmall}, 16.0);
  EXPECT_DOUBLE_EQ(costs.Estimate({.bucket = kSmall}), 9.0);
  for (int i = 0; i < 100; ++i) costs.Observe({.bucket = kSmall}, 2.0);
  EXPECT_NEAR(costs.Estimate({.bucket = kSmall}), 2.0, 1e-3);
}

TEST(CostModel, AnUnknownBucketCostsWhatTheNextLargerOneDoes) {
  CostModel costs;
  costs.Observe({.bucket = kMiddle}, 3.0);
  EXPECT_EQ(costs.Estimate({.bucket = kSmall}), 3.0);
  EXPECT_EQ(costs.Estimate({.bucket = kLarge}), 3.0);
  costs.Observe({.bucket = kLarge}, 5.0);
  EXPECT_EQ(costs.Estimate({.bucket = kSmall}), 3.0);
  EXPECT_EQ(costs.Estimate({.bucket = kLarge}), 5.0);
}

TEST(CostModel, DrainIsFullBatchesAndTheRest) {
  CostModel costs;
  costs.Observe({.bucket = kSmall}, 1.0);
  costs.Observe({.bucket = kLarge}, 10.0);
  EXPECT_DOUBLE_EQ(costs.EstimateDrain(0, kLarge), 0.0);
  EXPECT_DOUBLE_EQ(costs.EstimateDrain(16, kLarge), 1.0);
  EXPECT_DOUBLE_EQ(costs.EstimateDrain(17, kLarge), 10.0);
  EXPECT_DOUBLE_EQ(costs.EstimateDrain(3 * 256 + 5, kLarge), 31.0);
}

}  // namespace
}  // namespace sluice
