#include "loadtest/bench/daemon/buckets_workload.h"

#include <gtest/gtest.h>

#include <set>

namespace sluice::loadtest {
namespace {

TEST(ScaleTraceTest, ShrinksByPositionsOverCapAndRoundsUp) {
  const std::vector<TraceRow> scaled = ScaleTrace(
      {{0, 0, 5}, {1, 1, 5}, {2, 32, 5}, {3, 33, 5}, {4, 8192, 5}, {5, 14050, 5}}, 8192, 256);
  ASSERT_EQ(scaled.size(), 6u);
  const int32_t expected[] = {1, 1, 1, 2, 256, 256};
  for (size_t i = 0; i < scaled.size(); ++i) EXPECT_EQ(scaled[i].input_tokens, expected[i]) << i;
  EXPECT_EQ(scaled[5].arrival_s, 5);
}

TEST(ScaleTraceTest, KeepsLengthsIfPositionsEqualTheCap) {
  const std::vector<TraceRow> scaled =
      ScaleTrace({{0, 7, 0}, {0, 2'000'000'000, 0}}, 1 << 24, 1 << 24);
  EXPECT_EQ(scaled[0].input_tokens, 7);
  EXPECT_EQ(scaled[1].input_tokens, 1 << 24);
}

BucketsWorkload Workload() {
  std::vector<TraceRow> trace;
  for (int32_t tokens = 1; tokens <= 100; ++tokens) trace.push_back({0, tokens, 0});
  return BucketsWorkload(std::move(trace), 100, 258, 7);
}

TEST(BucketsWorkloadTest, CountsLengths) {
  const BucketsWorkload workload = Workload();
  EXPECT_EQ(workload.DistinctLengths(), 100);
  EXPECT_DOUBLE_EQ(workload.MeanLength(), 50.5);
}

TEST(BucketsWorkloadTest, PhaseContinuesTheLengthsOfThePreviousPhase) {
  BucketsWorkload workload = Workload();
  int32_t next = 1;
  for (int phase = 0; phase < 3; ++phase) {
    const auto traffic = workload.Open(70, std::chrono::seconds(1));
    ASSERT_TRUE(traffic.ok()) << traffic.status();
    ASSERT_EQ(traffic->arrivals.size(), traffic->payloads.size());
    for (size_t i = 0; i < traffic->arrivals.size(); ++i) {
      EXPECT_EQ(traffic->arrivals[i].tokens, next);
      EXPECT_EQ(traffic->arrivals[i].max_tokens, 1);
      EXPECT_EQ(workload.pool().payloads()[traffic->payloads[i]].tokens, next);
      next = next % 100 + 1;
    }
  }
}

TEST(BucketsWorkloadTest, EachLengthHasTwoContents) {
  BucketsWorkload workload = Workload();
  const auto traffic = workload.Closed(8, std::chrono::seconds(3));
  ASSERT_TRUE(traffic.ok()) << traffic.status();
  EXPECT_EQ(traffic->outstanding, 8);
  EXPECT_EQ(traffic->duration, std::chrono::seconds(3));
  const std::set<uint32_t> distinct(traffic->payloads.begin(), traffic->payloads.end());
  EXPECT_EQ(distinct.size(), 200u);
  EXPECT_EQ(workload.pool().payloads().size(), 200u);
}

}  // namespace
}  // namespace sluice::loadtest
