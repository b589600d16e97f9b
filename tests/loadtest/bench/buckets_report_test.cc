#include "loadtest/bench/daemon/buckets_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "loadtest/bench/daemon/rounds.h"

namespace sluice::loadtest {
namespace {

using ::testing::HasSubstr;

Measurement At(double tokens_per_s, double p99_ms) {
  Measurement measured;
  measured.ran = true;
  measured.tokens_per_s = tokens_per_s;
  measured.p99_ms = p99_ms;
  measured.calls = 10;
  measured.useful_tokens = 60;
  measured.computed_tokens = 80;
  measured.bucket_tokens = 100;
  measured.batches = 2;
  measured.cpu_s = 0.5;
  return measured;
}

// Returns two settings of one contestant, and the arm for the comparison.
BucketsResult TwoRounds() {
  BucketsResult result;
  result.arms = {
      {"padded", "padded", PolicyKind::kStaticPadded, StrategyKind::kGeometric},
      {"padded_5ms", "padded", PolicyKind::kStaticPadded, StrategyKind::kGeometric, 5000},
      {"packed", "packed", PolicyKind::kPacked, StrategyKind::kAdaptive}};
  result.loads.resize(2);
  result.loads[0].arms = {
      {At(100, 0), At(80, 0)}, {At(50, 0), At(100, 0)}, {At(300, 0), At(500, 0)}};
  result.loads[1].rate = 40;
  result.loads[1].arms = {{At(0, 30), At(0, 50)}, {At(0, 31), At(0, 35)}, {At(0, 7), At(0, 9)}};
  return result;
}

TEST(SpreadTest, HandlesNoneOneAndManyValues) {
  EXPECT_EQ(SpreadOf({}).median, 0);
  EXPECT_EQ(SpreadOf({3}).min, 3);
  const Spread spread = SpreadOf({4, 1, 3, 2});
  EXPECT_EQ(spread.median, 2.5);
  EXPECT_EQ(spread.min, 1);
  EXPECT_EQ(spread.max, 4);
}

TEST(BucketsReportTest, ComparesWithTheBestSettingOfEachRound) {
  const BucketsResult result = TwoRounds();
  const Spread ratio = ThroughputRatio(result, result.loads[0], "padded");
  EXPECT_DOUBLE_EQ(ratio.min, 3);
  EXPECT_DOUBLE_EQ(ratio.max, 5);
  EXPECT_DOUBLE_EQ(ratio.median, 4);
}

TEST(BucketsReportTest, BestLatencyComesFromTheBestSetting) {
  const BucketsResult result = TwoRounds();
  EXPECT_DOUBLE_EQ(BestP99(result, result.loads[1], "padded"), 33);
  EXPECT_DOUBLE_EQ(BestP99(result, result.loads[1], "packed"), 8);
}

TEST(BucketsReportTest, ArmHasNoLatencyAtALoadBeyondItsPeak) {
  BucketsResult result = TwoRounds();
  result.loads[1].arms[1] = {{}, {}};
  EXPECT_DOUBLE_EQ(BestP99(result, result.loads[1], "padded"), 40);
  result.loads[1].arms[0] = {{}, {}};
  EXPECT_EQ(BestP99(result, result.loads[1], "padded"), 0);
  EXPECT_EQ(ComparisonJson(result)["padded"]["latency"][0]["other_p99_ms"], "beyond its peak");
  EXPECT_EQ(ArmJson(result, 0)["loads"][1]["beyond_peak"], true);
  EXPECT_THAT(BucketsTables(result), HasSubstr("| padded | beyond its peak |"));
}

TEST(BucketsReportTest, ComputesEfficiencyFromSumsAndOverheadFromBuckets) {
  BucketsResult result = TwoRounds();
  result.loads[0].arms[2][1].useful_tokens = 100;
  const nlohmann::json load = ArmJson(result, 2)["loads"][0];
  EXPECT_DOUBLE_EQ(load["bucket_fill"], 0.8);
  EXPECT_DOUBLE_EQ(load["executed_efficiency"], 1);
  EXPECT_DOUBLE_EQ(load["bucket_overhead"], 0.25);
  EXPECT_DOUBLE_EQ(load["useful_tokens_per_batch"], 40);
  EXPECT_DOUBLE_EQ(load["useful_tokens_per_cpu_s"], 160);
}

TEST(BucketsReportTest, FaultsAreCountedOverAllLoads) {
  BucketsResult result = TwoRounds();
  result.loads[0].arms[2][0].wrong = 1;
  result.loads[1].arms[2][1].captures = 2;
  const nlohmann::json arm = ArmJson(result, 2);
  EXPECT_EQ(arm["wrong"], 1);
  EXPECT_EQ(arm["captures"], 2);
  EXPECT_EQ(arm["calls"], 40);
}

}  // namespace
}  // namespace sluice::loadtest
