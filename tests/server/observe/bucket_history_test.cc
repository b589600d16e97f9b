#include "server/observe/bucket_history.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tests/server/protocol/messages.h"

namespace sluice {
namespace {

using std::chrono::minutes;
using testing::ExampleStats;

class BucketHistoryTest : public ::testing::Test {
 protected:
  void RunBatches(int64_t batches, int64_t useful) {
    BucketStats& bucket = stats_.buckets[0];
    bucket.batches += batches;
    bucket.hits += batches - 1;
    bucket.useful_tokens += useful;
    bucket.computed_tokens += useful + 1;
    bucket.bucket_tokens += batches * bucket.bucket.tokens;
    bucket.replay += batches * std::chrono::milliseconds(10);
    stats_.steps += batches;
  }
  void EndStretch() {
    now_ += minutes(1);
    history_.Add({&stats_, 1}, now_);
  }
  std::vector<HistoryStretch> Stretches() const { return history_.Of(stats_, now_); }

  MonoTime now_{std::chrono::hours(1)};
  ModelStats stats_ = ExampleStats(now_);
  BucketHistory history_;
};

TEST_F(BucketHistoryTest, StartsWhenAModelIsFirstSeen) {
  EXPECT_TRUE(Stretches().empty());
  EndStretch();
  ASSERT_EQ(Stretches().size(), 1u);
  EXPECT_EQ(Stretches()[0].all.batches, 0) << "earlier batches are in no interval";
}

TEST_F(BucketHistoryTest, EachIntervalHasItsBatches) {
  EndStretch();
  RunBatches(3, 30);
  EndStretch();
  RunBatches(2, 50);
  now_ += minutes(1);
  const std::vector<HistoryStretch> stretches = Stretches();
  ASSERT_EQ(stretches.size(), 2u);
  EXPECT_EQ(stretches[0].all.batches, 3);
  EXPECT_EQ(stretches[0].all.hits, 2);
  EXPECT_EQ(stretches[0].all.useful_tokens, 30);
  EXPECT_EQ(stretches[0].all.computed_tokens, 31);
  EXPECT_EQ(stretches[0].all.bucket_tokens, 3 * stats_.buckets[0].bucket.tokens);
  EXPECT_EQ(stretches[0].end, stretches[1].begin);
  EXPECT_EQ(stretches[0].end - stretches[0].begin, minutes(1));
  EXPECT_EQ(stretches[1].all.batches, 2);
  EXPECT_EQ(stretches[1].all.useful_tokens, 50);
  EXPECT_EQ(stretches[1].end, now_);
  EXPECT_EQ(stretches[1].length_p50, 7);  // 3 weighs 1.5, and 7 weighs 2
}

TEST_F(BucketHistoryTest, EachIntervalHasItsBatchesByBucket) {
  EndStretch();
  RunBatches(3, 30);
  EndStretch();
  stats_.buckets.push_back({.bucket = {.tokens = 4096, .sequences = 8}, .batches = 7, .hits = 5});
  EndStretch();
  EndStretch();
  const std::vector<HistoryStretch> stretches = Stretches();
  ASSERT_EQ(stretches[0].buckets.size(), 1u);
  EXPECT_EQ(stretches[0].buckets[0].bucket, stats_.buckets[0].bucket);
  EXPECT_EQ(stretches[0].buckets[0].counts.batches, 3);
  EXPECT_EQ(stretches[0].buckets[0].counts.useful_tokens, 30);
  EXPECT_EQ(stretches[0].buckets[0].counts.replay, std::chrono::milliseconds(30));
  ASSERT_EQ(stretches[1].buckets.size(), 1u) << "a new bucket starts from 0";
  EXPECT_EQ(stretches[1].buckets[0].bucket.tokens, 4096);
  EXPECT_EQ(stretches[1].buckets[0].counts.hits, 5);
  EXPECT_EQ(stretches[1].all.batches, 7);
  EXPECT_TRUE(stretches[2].buckets.empty()) << "no batch ran";
}

// The counts of a forgotten bucket move to the sums of forgotten buckets.
TEST_F(BucketHistoryTest, AForgottenBucketDoesNotChangeTheSums) {
  EndStretch();
  RunBatches(3, 30);
  stats_.forgotten_buckets = std::exchange(stats_.buckets[0], {.bucket = {.tokens = 99}});
  stats_.buckets[0].batches = 2;
  std::ranges::sort(stats_.buckets, {}, &BucketStats::bucket);
  EndStretch();
  EXPECT_EQ(Stretches()[0].all.batches, 5);
  EXPECT_EQ(Stretches()[0].all.useful_tokens, 30);
  ASSERT_EQ(Stretches()[0].buckets.size(), 1u);
  EXPECT_EQ(Stretches()[0].buckets[0].counts.batches, 2);
}

// For 90 minutes, minute i has i batches. The clock is injected.
TEST_F(BucketHistoryTest, TheLastHourHasTheIntervalsThatEndedInIt) {
  EXPECT_EQ(LastHour({}, now_).end - LastHour({}, now_).begin, minutes(0));
  EndStretch();
  for (int64_t i = 1; i <= 90; ++i) {
    RunBatches(i, 10 * i);
    EndStretch();
  }
  RunBatches(1000, 2000);
  now_ += std::chrono::seconds(30);
  // The current half minute, and the intervals from the one that ended 59.5 minutes ago.
  const HistoryStretch hour = LastHour(Stretches(), now_);
  EXPECT_EQ(hour.end, now_);
  EXPECT_EQ(hour.end - hour.begin, std::chrono::seconds(60 * 60 + 30));
  const int64_t batches = (31 + 90) * 60 / 2 + 1000;
  EXPECT_EQ(hour.all.batches, batches);
  EXPECT_EQ(hour.all.useful_tokens, 10 * (batches - 1000) + 2000);
  ASSERT_EQ(hour.buckets.size(), 1u);
  EXPECT_EQ(hour.buckets[0].counts.batches, batches);
  EXPECT_EQ(hour.all.replay, batches * std::chrono::milliseconds(10));
  stats_.device_tokens_per_second = 100;
  stats_.costs.law[1] = 0.001;
  stats_.costs.law[2] = 0.002;
  const DeviceUse use = UseOf(hour.all, hour.end - hour.begin, stats_);
  const double busy = 0.01 * static_cast<double>(batches);
  EXPECT_DOUBLE_EQ(use.busy_share, busy / 3630);
  // One computed row for each call of RunBatches had no useful token.
  EXPECT_DOUBLE_EQ(use.wasted_share, 0.001 * 61 / busy);
  EXPECT_DOUBLE_EQ(use.useful_share, static_cast<double>(hour.all.useful_tokens) / 3630 / 100);
}

TEST_F(BucketHistoryTest, IntervalsShareALadderUntilItChanges) {
  EndStretch();
  EndStretch();
  EndStretch();
  stats_.buckets.push_back({.bucket = {.tokens = 4096, .sequences = 8}, .in_ladder = true});
  EndStretch();
  const std::vector<HistoryStretch> stretches = Stretches();
  ASSERT_EQ(stretches.size(), 4u);
  EXPECT_EQ(stretches[0].ladder, stretches[1].ladder);
  EXPECT_EQ(stretches[0].ladder->size(), 1u) << "withdrawn buckets are not in the ladder";
  EXPECT_EQ(stretches[2].ladder->size(), 2u);
  EXPECT_EQ(stretches[2].ladder, stretches[3].ladder);
}

TEST_F(BucketHistoryTest, AModelThatIsLoadedAgainCountsFromZero) {
  RunBatches(100, 1000);
  EndStretch();
  stats_ = ExampleStats(now_);
  stats_.steps = 0;
  for (BucketStats& bucket : stats_.buckets) bucket = {.bucket = bucket.bucket};
  RunBatches(4, 40);
  EXPECT_EQ(Stretches().back().all.batches, 4);
  EXPECT_EQ(Stretches().back().all.useful_tokens, 40);
}

TEST_F(BucketHistoryTest, KeepsTheLatestIntervalsOfServedModels) {
  for (size_t i = 0; i < BucketHistory::kStretches + 5; ++i) {
    RunBatches(static_cast<int64_t>(i), 1);
    EndStretch();
  }
  EXPECT_EQ(Stretches().size(), BucketHistory::kStretches + 1);
  EXPECT_EQ(Stretches()[0].all.batches, 5);
  EXPECT_EQ(Stretches()[BucketHistory::kStretches - 1].all.batches, BucketHistory::kStretches + 4);
  history_.Add({}, now_);
  EXPECT_TRUE(Stretches().empty());
}

}  // namespace
}  // namespace sluice
