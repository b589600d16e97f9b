#include "server/protocol/describe/admin_messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "tests/server/protocol/messages.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using testing::ExampleStats;

const MonoTime kStart{std::chrono::hours(1)};

TEST(DescribeBuckets, DescribesEachBucketAndTheirTotals) {
  const BackendInfo backend{.device = "cpu", .profile = "b", .page_tokens = 4};
  EngineOptions options;
  options.batch.policy = PolicyKind::kStaticPadded;
  ModelStats stats = ExampleStats(kStart);
  stats.attention = {AttentionVariant::Kind::kTwoPass};
  stats.profile = "p";
  stats.ladder_options.strategy = StrategyKind::kMemoryOptimal;
  stats.ladder_options.memory_limit_bytes = 999;
  stats.memory_limit_effect = "Smaller.";
  stats.device_tokens_per_second = 250;
  stats.ladder_kept = {{"ratio", "3"}};
  const auto model = DescribeBuckets(stats, backend, options, kStart);
  EXPECT_EQ(model.model_name(), "text");
  EXPECT_EQ(model.model_version(), "3");
  EXPECT_EQ(model.device(), "cpu");
  EXPECT_EQ(model.profile(), "p");
  EXPECT_EQ(model.attention(), "two_pass");
  EXPECT_EQ(model.policy(), "static_padded");
  EXPECT_EQ(model.strategy(), "memory_optimal");
  EXPECT_EQ(model.ladder_options().at("strategy"), "memory_optimal");
  EXPECT_EQ(model.ladder_options().at("max_buckets"), "0");
  EXPECT_EQ(model.ladder_kept().at("ratio"), "3");
  EXPECT_EQ(model.memory_limit_bytes(), 999);
  EXPECT_EQ(model.memory_limit_effect(), "Smaller.");
  EXPECT_EQ(model.device_tokens_per_second(), 250);
  ASSERT_EQ(model.buckets_size(), 2);
  const auto& used = model.buckets(0);
  EXPECT_EQ(used.bucket().tokens(), 16);
  EXPECT_EQ(used.bucket().rows(), 8);
  EXPECT_TRUE(used.ready());
  EXPECT_TRUE(used.in_ladder());
  EXPECT_EQ(used.rows(), 9);
  EXPECT_DOUBLE_EQ(used.bucket_fill(), 0.75);
  EXPECT_DOUBLE_EQ(used.executed_efficiency(), 0.96);
  EXPECT_DOUBLE_EQ(used.hit_rate(), 0.75);
  EXPECT_DOUBLE_EQ(used.prepare_seconds(), 0.02);
  EXPECT_DOUBLE_EQ(used.last_used_age_seconds(), 5);
  EXPECT_FALSE(model.buckets(1).in_ladder());
  EXPECT_LT(model.buckets(1).last_used_age_seconds(), 0);
  EXPECT_EQ(model.batches(), 4);
  EXPECT_DOUBLE_EQ(model.memory_overhead(), 4 * 200.0 / 600 - 1);
  EXPECT_EQ(used.activation_memory_bytes(), 200);
  EXPECT_EQ(model.ladder_memory_bytes(), 20 + 29);
  EXPECT_EQ(model.mapped_memory_bytes(), 25);
  EXPECT_EQ(model.copied_memory_bytes(), 26);
  EXPECT_EQ(model.queued_memory_bytes(), 16);
  ASSERT_EQ(model.lengths_size(), 2);
  EXPECT_EQ(model.lengths(1).tokens(), 7);
  EXPECT_EQ(model.tokens_per_second(), 70);
  EXPECT_EQ(model.cost_law().base(), 1);
  EXPECT_EQ(model.cost_law().per_sampled_row(), 6);
  EXPECT_EQ(model.cost_law().per_distinct_adapter(), 7);
  EXPECT_EQ(model.ladder_changes().removed(), 2);
  EXPECT_EQ(model.ladder_changes().reviews(), 6);
}

TEST(DescribeBuckets, HistogramsHaveAtMost1024Sizes) {
  ModelStats stats = ExampleStats(kStart);
  for (int i = 1; i <= 5000; ++i) stats.traffic.batch_tokens.push_back({i, 1});
  const auto model = DescribeBuckets(stats, {}, {}, kStart);
  EXPECT_EQ(model.batch_totals_size(), static_cast<int>(kMaxReportedSizes));
  EXPECT_EQ(model.batch_totals(model.batch_totals_size() - 1).tokens(), 5000);
}

TEST(DescribeReview, ListsTheChanges) {
  const Bucket a{.tokens = 8, .sequences = 8}, b{.tokens = 16, .sequences = 16};
  const auto review =
      DescribeReview({.changed = true,
                      .before = {a},
                      .after = {a, b},
                      .diff = {.added = {b}, .removed = {}, .merged = {}, .split = {}},
                      .gain = 0.1,
                      .bucket_fill_before = 0.5,
                      .bucket_fill_after = 0.9,
                      .reason = "why"});
  EXPECT_TRUE(review.changed());
  EXPECT_EQ(review.reason(), "why");
  EXPECT_EQ(review.before_size(), 1);
  EXPECT_EQ(review.after_size(), 2);
  ASSERT_EQ(review.added_size(), 1);
  EXPECT_EQ(review.added(0).tokens(), 16);
  EXPECT_EQ(review.removed_size() + review.merged_size() + review.split_size(), 0);
  EXPECT_DOUBLE_EQ(review.bucket_fill_after(), 0.9);
}

Explanation Explained() {
  Explanation explanation;
  explanation.request_id = "r";
  explanation.model = "text";
  explanation.version = 3;
  explanation.trace.received = kStart;
  explanation.trace.queued = kStart + milliseconds(1);
  explanation.trace.first_run = kStart + milliseconds(4);
  explanation.trace.done = kStart + milliseconds(9);
  explanation.trace.steps = 40;
  explanation.waits = {{.at = kStart + milliseconds(2),
                        .until = kStart + milliseconds(5),
                        .reason = WaitReason::kMoreRequests,
                        .waiting = {.tokens = 30, .sequences = 2, .longest = 20}},
                       {.at = kStart + milliseconds(3), .until = MonoTime::max()}};
  explanation.steps = {{.step = 7,
                        .start = kStart + milliseconds(4),
                        .replay = milliseconds(3),
                        .bucket = Bucket::Padded(4, 8),
                        .batch = {.tokens = 25, .sequences = 4, .longest = 8},
                        .own_tokens = 6,
                        .trigger = Trigger::kFull,
                        .lookup = Lookup::kMissGuard}};
  return explanation;
}

TEST(DescribeRequest, TimesAreRelativeToTheArrival) {
  const auto response = DescribeRequest(Explained());
  EXPECT_EQ(response.model_version(), "3");
  EXPECT_EQ(response.status(), "OK");
  EXPECT_DOUBLE_EQ(response.queue_seconds(), 0.003);
  EXPECT_DOUBLE_EQ(response.total_seconds(), 0.009);
  EXPECT_EQ(response.total_steps(), 40);
  ASSERT_EQ(response.waits_size(), 2);
  EXPECT_DOUBLE_EQ(response.waits(0).at_seconds(), 0.002);
  EXPECT_DOUBLE_EQ(response.waits(0).until_seconds(), 0.005);
  EXPECT_EQ(response.waits(0).reason(), "more_requests");
  EXPECT_EQ(response.waits(0).waiting_rows(), 2);
  EXPECT_LT(response.waits(1).until_seconds(), 0);
  ASSERT_EQ(response.steps_size(), 1);
  const auto& step = response.steps(0);
  EXPECT_EQ(step.bucket().positions(), 8);
  EXPECT_EQ(step.batch_tokens(), 25);
  EXPECT_EQ(step.own_tokens(), 6);
  EXPECT_EQ(step.trigger(), "full");
  EXPECT_EQ(step.lookup(), "guard");
}

TEST(DescribeRequest, NamesRequestsOfTheSameStepAndHidesIdsOfOtherCallers) {
  Explanation explanation = Explained();
  explanation.caller = "ann";
  const auto co_batched = std::make_shared<CoBatchedRequests>();
  co_batched->requests = 5;
  for (const RequestName& name : std::vector<RequestName>{
           {"mine", "ann"}, {"r", "ann"}, {"secret", "bob"}, {"secret", "eve"}}) {
    co_batched->named.push_back(std::make_shared<const RequestName>(name));
  }
  explanation.steps[0].co_batched = co_batched;
  explanation.steps[0].count = 3;
  explanation.steps[0].last_step = 9;
  const auto response = DescribeRequest(explanation);
  const auto& step = response.steps(0);
  EXPECT_EQ(step.steps(), 3);
  EXPECT_EQ(step.last_step(), 9);
  EXPECT_EQ(step.other_requests(), 4);
  ASSERT_EQ(step.shared_with_size(), 3);
  EXPECT_EQ(step.shared_with(0), "mine");
  EXPECT_THAT(step.shared_with(1), ::testing::MatchesRegex("#[0-9a-f]+"));
  EXPECT_EQ(step.shared_with(1).size(), 17u);
  EXPECT_NE(step.shared_with(1), step.shared_with(2));
  EXPECT_EQ(DescribeRequest(explanation).steps(0).shared_with(1), step.shared_with(1));
}

TEST(AddLastHour, AddsTheCountsOfTheModelAndOfEachBucket) {
  ModelStats stats = ExampleStats(kStart);
  stats.device_tokens_per_second = 10;
  auto model = DescribeBuckets(stats, {}, {}, kStart);
  HistoryStretch hour;
  hour.begin = kStart - std::chrono::seconds(100);
  hour.end = kStart;
  hour.all = {.batches = 8,
              .hits = 6,
              .sequences = 9,
              .useful_tokens = 50,
              .computed_tokens = 51,
              .bucket_tokens = 100,
              .replay = std::chrono::seconds(25)};
  hour.buckets = {{.bucket = stats.buckets[0].bucket, .counts = hour.all}};
  AddLastHour(hour, stats, &model);
  EXPECT_EQ(model.last_hour_seconds(), 100);
  EXPECT_DOUBLE_EQ(model.busy_share(), 0.25);
  EXPECT_DOUBLE_EQ(model.wasted_share(), 2.0 / 25);  // law[1] for one row
  EXPECT_DOUBLE_EQ(model.useful_share(), 0.05);
  for (const auto& counts : {model.last_hour(), model.buckets(0).last_hour()}) {
    EXPECT_EQ(counts.batches(), 8);
    EXPECT_EQ(counts.rows(), 9);
    EXPECT_EQ(counts.replay_seconds(), 25);
    EXPECT_DOUBLE_EQ(counts.bucket_fill(), 0.5);
    EXPECT_DOUBLE_EQ(counts.executed_efficiency(), 50.0 / 51);
    EXPECT_DOUBLE_EQ(counts.hit_rate(), 0.75);
  }
  EXPECT_EQ(model.buckets(1).last_hour().batches(), 0);
}

TEST(AddHistory, ListsALadderOnlyIfItChanges) {
  const MonoTime now(std::chrono::hours(1));
  const auto ladder = std::make_shared<const std::vector<Bucket>>(
      std::vector<Bucket>{{.tokens = 8, .sequences = 4}, {.tokens = 16, .sequences = 4}});
  std::vector<HistoryStretch> history(3);
  for (HistoryStretch& stretch : history) stretch.ladder = ladder;
  history[0] = {.begin = now - std::chrono::seconds(90),
                .end = now - std::chrono::seconds(30),
                .all = {.batches = 5,
                        .hits = 4,
                        .useful_tokens = 50,
                        .computed_tokens = 60,
                        .bucket_tokens = 70,
                        .replay = std::chrono::seconds(2)},
                .buckets = {{.bucket = {.tokens = 16, .sequences = 4},
                             .counts = {.batches = 3, .sequences = 6}}},
                .length_p50 = 3,
                .length_p90 = 6,
                .length_p99 = 9,
                .ladder = ladder};
  history[2].ladder = std::make_shared<const std::vector<Bucket>>(
      std::vector<Bucket>{{.tokens = 16, .sequences = 4}});
  admin::v1::ModelBuckets model;
  AddHistory(history, now, &model);
  ASSERT_EQ(model.history_size(), 3);
  const auto& first = model.history(0);
  EXPECT_DOUBLE_EQ(first.begin_age_seconds(), 90);
  EXPECT_DOUBLE_EQ(first.end_age_seconds(), 30);
  EXPECT_EQ(first.batches(), 5);
  EXPECT_EQ(first.hits(), 4);
  EXPECT_EQ(first.useful_tokens(), 50);
  EXPECT_EQ(first.computed_tokens(), 60);
  EXPECT_EQ(first.bucket_tokens(), 70);
  EXPECT_EQ(first.replay_seconds(), 2);
  ASSERT_EQ(first.buckets_size(), 1);
  EXPECT_EQ(first.buckets(0).bucket().tokens(), 16);
  EXPECT_EQ(first.buckets(0).counts().batches(), 3);
  EXPECT_EQ(first.buckets(0).counts().rows(), 6);
  EXPECT_EQ(first.length_p50(), 3);
  EXPECT_EQ(first.length_p90(), 6);
  EXPECT_EQ(first.length_p99(), 9);
  ASSERT_EQ(first.ladder_size(), 2);
  EXPECT_EQ(first.ladder(1).tokens(), 16);
  EXPECT_EQ(model.history(1).ladder_size(), 0);
  EXPECT_EQ(model.history(2).ladder_size(), 1);
}

TEST(DescribeRequest, ARequestThatNeverRanWaitedUntilItsEnd) {
  Explanation explanation = Explained();
  explanation.status = absl::DeadlineExceededError("too late");
  explanation.trace.first_run = {};
  explanation.steps.clear();
  const auto response = DescribeRequest(explanation);
  EXPECT_EQ(response.status(), "DEADLINE_EXCEEDED: too late");
  EXPECT_DOUBLE_EQ(response.queue_seconds(), 0.008);
}

}  // namespace
}  // namespace sluice
