#include "engine/runner/models/model_runner.h"

#include <algorithm>
#include <chrono>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/runner/runner_parts.h"

namespace sluice {
namespace {

using std::chrono::seconds;

ModelStats Stats(const RunnerParts& parts) {
  return StatsOf(parts.prepared, parts.state, parts.clock.Now());
}

TEST(RunnerStats, AnIdleRunnerHasOnlyPlans) {
  const RunnerParts parts;
  const ModelStats stats = Stats(parts);
  EXPECT_EQ(stats.waiting_requests + stats.running_requests, 0);
  EXPECT_EQ(stats.waiting_sequences + stats.running_sequences, 0);
  EXPECT_EQ(stats.queued_tokens, 0);
  EXPECT_EQ(stats.queued_bytes, 0);
  EXPECT_EQ(stats.oldest_age, nanoseconds(0));
  EXPECT_EQ(stats.estimated_drain, nanoseconds(0));
  EXPECT_EQ(stats.steps, 0);
  EXPECT_GT(stats.plan_memory_bytes, 0);
  ASSERT_EQ(stats.buckets.size(), 4u);  // 8, 16, 32, 64
  for (const BucketStats& bucket : stats.buckets) {
    EXPECT_TRUE(bucket.ready);
    EXPECT_TRUE(bucket.in_ladder);
  }
  EXPECT_EQ(stats.kv.held, 0);
  EXPECT_EQ(stats.kv.pages, parts.prepared.kv.pages);
}

TEST(RunnerStats, FollowsRequestsFromTheQueueThroughAStepToTheirEnd) {
  RunnerParts parts;
  parts.Admit({{5, 6, 7}, {8}}, 3);
  parts.clock.Advance(seconds(2));
  parts.Admit({{9, 9}});
  ModelStats stats = Stats(parts);
  EXPECT_EQ(stats.waiting_requests, 2);
  EXPECT_EQ(stats.waiting_sequences, 3);
  EXPECT_EQ(stats.queued_tokens, 6);
  EXPECT_GT(stats.queued_bytes, 0);
  EXPECT_EQ(stats.oldest_age, seconds(2));

  ASSERT_TRUE(parts.pipeline.Launch(parts.Decide()));
  stats = Stats(parts);
  EXPECT_EQ(stats.running_requests, 2);
  EXPECT_EQ(stats.waiting_requests, 0);
  EXPECT_EQ(stats.running_sequences, 3);
  EXPECT_EQ(stats.waiting_sequences, 0);
  EXPECT_EQ(stats.queued_tokens, 0);
  EXPECT_EQ(stats.oldest_age, nanoseconds(0));

  ASSERT_TRUE(parts.pipeline.FinishOldest());
  parts.pipeline.DeliverFinished();
  stats = Stats(parts);
  EXPECT_EQ(stats.steps, 1);
  EXPECT_EQ(stats.running_requests, 1);   // the first request continues to generate
  EXPECT_EQ(stats.running_sequences, 2);  // its rows hold pages
  EXPECT_EQ(stats.waiting_sequences, 0);
  EXPECT_EQ(stats.queued_tokens, 2);  // one token for each of them
  EXPECT_EQ(stats.oldest_age, nanoseconds(0)) << "they do not wait";
  EXPECT_GT(stats.kv.held, 0);
  const auto used = std::count_if(stats.buckets.begin(), stats.buckets.end(),
                                  [](const BucketStats& bucket) { return bucket.batches == 1; });
  EXPECT_EQ(used, 1);
}

TEST(RunnerStats, MarksABucketThatLeftTheLadder) {
  RunnerParts parts;
  {
    MutexLock lock(&parts.state.mu);
    parts.state.scheduler.SetLadder(
        std::make_shared<const Ladder>(std::vector<Bucket>{parts.prepared.ladder->largest()}));
  }
  const ModelStats stats = Stats(parts);
  ASSERT_EQ(stats.buckets.size(), 4u);
  for (const BucketStats& bucket : stats.buckets) {
    EXPECT_EQ(bucket.in_ladder, bucket.bucket == parts.prepared.ladder->largest());
  }
}

}  // namespace
}  // namespace sluice
