// Tests reviews of the ladder while the engine serves.
#include "engine/runner/models/ladder_reviewer.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/runner/models/reviewed_engine.h"

namespace sluice {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

TEST(LadderReviewer, FitsTheLadderToTheTraffic) {
  ReviewedEngine served(AdaptiveOptions());
  ASSERT_FALSE(served.HasBucket(37));
  served.Serve(37, 400);
  const absl::StatusOr<ReviewReport> report = served.engine->Review("fake", "", true);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->changed) << report->reason;
  EXPECT_GT(report->gain, 0);
  EXPECT_TRUE(served.HasBucket(37));
  EXPECT_TRUE(served.HasBucket(64));
  ASSERT_EQ(served.observer.reviews().size(), 1u);
  const size_t batches = served.observer.batches().size();
  const size_t plans = served.observer.plans().size();
  served.Serve(37, 20);
  for (const BatchTrace& batch : served.observer.batches()) {
    EXPECT_EQ(batch.lookup, Lookup::kHit);
  }
  EXPECT_EQ(served.observer.batches()[batches].bucket.tokens, 37);
  EXPECT_EQ(served.observer.plans().size(), plans);  // nothing is captured while serving
  const LadderChanges changes = served.engine->Stats()[0].ladder_changes;
  EXPECT_EQ(changes.reviews, 1);
  EXPECT_GT(changes.added + changes.merged + changes.split, 0);
}

TEST(LadderReviewer, WithdrawnBucketsAreNotReadyAndKeepTheirHistory) {
  EngineOptions options = AdaptiveOptions();
  options.ladder.max_buckets = 3;
  ReviewedEngine served(options);
  served.Serve(37, 400);
  const absl::StatusOr<ReviewReport> report = served.engine->Review("fake", "1", true);
  ASSERT_TRUE(report.ok() && report->changed);
  const ModelStats stats = served.engine->Stats()[0];
  int64_t batches = 0, memory = 0;
  for (const BucketStats& bucket : stats.buckets) {
    EXPECT_EQ(bucket.in_ladder, bucket.ready);
    EXPECT_EQ(bucket.in_ladder,
              std::count(report->after.begin(), report->after.end(), bucket.bucket) == 1);
    batches += bucket.batches;
    memory += bucket.memory_bytes;
  }
  EXPECT_EQ(batches, 400);
  EXPECT_EQ(memory, stats.plan_memory_bytes);
  EXPECT_LE(report->after.size(), 3u);
}

TEST(LadderReviewer, ReviewsByItselfOnTheInjectedClock) {
  EngineOptions options = AdaptiveOptions();
  options.ladder.review.interval_us = 10'000'000;
  ReviewedEngine served(options);
  served.Serve(37, 400);
  EXPECT_TRUE(served.observer.reviews().empty());  // 400 steps took less than a millisecond each
  served.clock.Advance(seconds(10));
  served.observer.AwaitReviews(1);
  EXPECT_TRUE(served.HasBucket(37));
}

TEST(LadderReviewer, AnIdleModelIsNotReviewedAgain) {
  EngineOptions options = AdaptiveOptions();
  options.ladder.review.interval_us = 10'000'000;
  ReviewedEngine served(options);
  served.Serve(37, 1);
  // Any of these calls may come before the reviewer begins its first wait.
  while (served.observer.reviews().empty()) served.clock.Advance(seconds(10));
  for (int i = 0; i < 1000; ++i) served.clock.Advance(seconds(10));
  EXPECT_EQ(served.observer.reviews().size(), 1u);
}

TEST(LadderReviewer, ALadderWhosePlansCannotBePreparedIsNotAdopted) {
  ReviewedEngine served(AdaptiveOptions());
  served.Serve(37, 400);
  const int64_t memory = served.engine->Stats()[0].plan_memory_bytes;
  served.backend.OnPrepare([](const Bucket&) { return absl::ResourceExhaustedError("memory"); });
  const absl::StatusOr<ReviewReport> report = served.engine->Review("fake", "", true);
  ASSERT_TRUE(report.ok());
  EXPECT_FALSE(report->changed);
  EXPECT_THAT(report->reason, HasSubstr("memory"));
  EXPECT_EQ(report->before, report->after);
  EXPECT_EQ(served.engine->Stats()[0].plan_memory_bytes, memory);
  served.Serve(37, 3);
}

TEST(LadderReviewer, ALadderOfOneColumnIsNeitherReviewedNorChosen) {
  EngineOptions options = AdaptiveOptions();
  options.batch.policy = PolicyKind::kStaticPadded;
  Harness harness(options);
  for (const absl::Status& status :
       {harness.engine->Review("fake", "", true).status(),
        harness.engine->ChooseLadder("fake", "", {{"ratio", "2"}}, false).status(),
        harness.engine->TryStrategies("fake", "").status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  }
  for (const absl::Status& status : {harness.engine->Review("other", "", true).status(),
                                     harness.engine->Review("fake", "9", true).status(),
                                     harness.engine->ChooseLadder("fake", "9", {}, false).status(),
                                     harness.engine->TryStrategies("other", "").status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  }
}

TEST(LadderReviewer, FitsTheColumnsOfAPaddedLadder) {
  EngineOptions options = AdaptiveOptions();
  options.batch.policy = PolicyKind::kPaddedBuckets;
  ReviewedEngine served(options);
  served.Serve(37, 400);
  const absl::StatusOr<ReviewReport> report = served.engine->Review("fake", "", true);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->changed) << report->reason;
  EXPECT_GT(report->gain, 0);
  EXPECT_EQ(std::ranges::count(report->after, 37, &Bucket::positions), 1) << "64 tokens hold one";
  EXPECT_EQ(std::ranges::count(report->after, 64, &Bucket::positions), 1) << "the widest column";
  served.Serve(37, 3);
  EXPECT_EQ(served.observer.batches().back().bucket, Bucket::Padded(1, 37));
}

// A plan that is withdrawn while the engine is idle ends without waiting for the next request.
TEST(LadderReviewer, AnIdleEngineFreesWithdrawnPlans) {
  EngineOptions options = AdaptiveOptions();
  options.ladder.max_buckets = 3;
  ReviewedEngine served(options);
  const int prepared = served.backend.live_plans();
  served.Serve(37, 400);
  const absl::StatusOr<ReviewReport> report = served.engine->Review("fake", "", true);
  ASSERT_TRUE(report.ok() && report->changed);
  served.backend.AwaitLivePlans(static_cast<int>(report->after.size()));
  EXPECT_GT(prepared, 0);
}

}  // namespace
}  // namespace sluice
