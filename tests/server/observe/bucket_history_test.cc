#include "server/observe/bucket_history.h"

#include <gtest/gtest.h>

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
  EXPECT_EQ(Stretches()[0].batches, 0) << "earlier batches are in no interval";
}

TEST_F(BucketHistoryTest, EachIntervalHasItsBatches) {
  EndStretch();
  RunBatches(3, 30);
  EndStretch();
  RunBatches(2, 50);
  now_ += minutes(1);
  const std::vector<HistoryStretch> stretches = Stretches();
  ASSERT_EQ(stretches.size(), 2u);
  EXPECT_EQ(stretches[0].batches, 3);
  EXPECT_EQ(stretches[0].hits, 2);
  EXPECT_EQ(stretches[0].useful_tokens, 30);
  EXPECT_EQ(stretches[0].computed_tokens, 31);
  EXPECT_EQ(stretches[0].bucket_tokens, 3 * stats_.buckets[0].bucket.tokens);
  EXPECT_EQ(stretches[0].end, stretches[1].begin);
  EXPECT_EQ(stretches[0].end - stretches[0].begin, minutes(1));
  EXPECT_EQ(stretches[1].batches, 2);
  EXPECT_EQ(stretches[1].useful_tokens, 50);
  EXPECT_EQ(stretches[1].end, now_);
  EXPECT_EQ(stretches[1].length_p50, 7);  // 3 weighs 1.5, and 7 weighs 2
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
  EXPECT_EQ(Stretches().back().batches, 4);
  EXPECT_EQ(Stretches().back().useful_tokens, 40);
}

TEST_F(BucketHistoryTest, KeepsTheLatestIntervalsOfServedModels) {
  for (size_t i = 0; i < BucketHistory::kStretches + 5; ++i) {
    RunBatches(static_cast<int64_t>(i), 1);
    EndStretch();
  }
  EXPECT_EQ(Stretches().size(), BucketHistory::kStretches + 1);
  EXPECT_EQ(Stretches()[0].batches, 5);
  EXPECT_EQ(Stretches()[BucketHistory::kStretches - 1].batches, BucketHistory::kStretches + 4);
  history_.Add({}, now_);
  EXPECT_TRUE(Stretches().empty());
}

}  // namespace
}  // namespace sluice
