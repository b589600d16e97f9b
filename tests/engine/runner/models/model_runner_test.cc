// Tests through the engine how one model's requests are grouped, run and ended.
#include "engine/runner/models/model_runner.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/runner/harness.h"
#include "tests/support/gate.h"
#include "tests/support/request_spec.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ModelRunner, RowsOfOneRequestSpreadOverBatches) {
  Harness harness;
  std::vector<std::vector<int32_t>> rows;
  for (int32_t row = 0; row < 7; ++row) rows.emplace_back(20 + row, 30 + row);
  const auto sink = harness.Submit(harness.MakeRequest(rows));
  sink->AwaitDone();
  ASSERT_TRUE(sink->status().ok());
  for (int32_t row = 0; row < 7; ++row) {
    EXPECT_EQ(sink->row_tokens(row), Greedy(rows[static_cast<size_t>(row)], 1)) << row;
  }
  const std::vector<RecordedBatch> batches = harness.backend.batches();
  ASSERT_EQ(batches.size(), 3u);
  EXPECT_EQ(batches[0].sequences.size(), 3u);  // 20 + 21 + 22 of 64 tokens
  EXPECT_EQ(batches[1].sequences.size(), 2u);
  EXPECT_EQ(batches[2].sequences.size(), 2u);
  EXPECT_EQ(sink->trace().steps, 3);
}

TEST(ModelRunner, PriorityThenArrivalOrdersTheQueue) {
  Gate gate;
  EngineOptions options = SmallOptions();
  options.batch.max_batch_sequences = 1;
  Harness harness(options);
  harness.HoldReplaysAt(&gate);
  std::vector<std::shared_ptr<RecordingSink>> sinks = {harness.Submit(harness.MakeRequest({{1}}))};
  gate.AwaitArrivals(1);
  const auto submit = [&](int32_t token, int priority) {
    Request request = harness.MakeRequest({{token}});
    Mutable(request.spec).priority = priority;
    sinks.push_back(harness.Submit(request));
  };
  submit(10, 3);
  submit(11, 2);
  submit(12, 1);
  submit(13, 1);
  submit(14, 2);
  gate.Open();
  for (const auto& sink : sinks) sink->AwaitDone();
  std::vector<int32_t> order;
  for (const RecordedBatch& batch : harness.backend.batches()) {
    order.push_back(batch.sequences[0][0]);
  }
  EXPECT_THAT(order, ElementsAre(1, 12, 13, 11, 14, 10));
}

TEST(ModelRunner, TheOldestSequenceContinuesFirst) {
  Gate gate;
  EngineOptions options = SmallOptions();
  options.batch.max_batch_sequences = 1;
  Harness harness(options);
  harness.HoldReplaysAt(&gate);
  const auto first = harness.Submit(harness.MakeRequest({{1}}, /*max_tokens=*/3));
  gate.AwaitArrivals(1);
  const auto second = harness.Submit(harness.MakeRequest({{2}}));
  gate.Open();
  first->AwaitDone();
  second->AwaitDone();
  std::vector<int32_t> order;
  for (const RecordedBatch& batch : harness.backend.batches()) {
    order.push_back(batch.sequences[0][0]);
  }
  EXPECT_THAT(order, ElementsAre(1, 1, 1, 2));
}

TEST(ModelRunner, DelaysABatchForMaxQueueDelay) {
  EngineOptions options = SmallOptions();
  options.batch.policy = PolicyKind::kFifoPacked;
  options.batch.max_queue_delay_us = 5000;
  Harness harness(options);
  const MonoTime start = harness.clock.Now();
  const auto first = harness.Submit(harness.MakeRequest({{1}}));
  harness.clock.AwaitWaiter(start + milliseconds(5));
  harness.clock.Advance(milliseconds(3));
  const auto second = harness.Submit(harness.MakeRequest({{2}}));
  EXPECT_EQ(first->done_calls(), 0);
  harness.clock.Advance(milliseconds(2));
  first->AwaitDone();
  second->AwaitDone();
  ASSERT_EQ(harness.backend.batches().size(), 1u);
  EXPECT_EQ(harness.observer.batches()[0].trigger, Trigger::kDelay);
  EXPECT_EQ(first->trace().first_run, start + milliseconds(5));
}

TEST(ModelRunner, AWaitingRequestThatIsCancelledNeverRuns) {
  Gate gate;
  Harness harness;
  harness.HoldReplaysAt(&gate);
  const auto running = harness.Submit(harness.MakeRequest({{1}}));
  gate.AwaitArrivals(1);
  RequestId id = 0;
  const auto cancelled = harness.Submit(harness.MakeRequest({{2}, {3}}), &id);
  const auto other = harness.Submit(harness.MakeRequest({{4}}));
  harness.engine->Cancel(id);
  harness.engine->Cancel(id);
  gate.Open();
  for (const auto& sink : {running, cancelled, other}) sink->AwaitDone();
  EXPECT_EQ(cancelled->status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(cancelled->trace().steps, 0);
  EXPECT_TRUE(running->status().ok());
  EXPECT_TRUE(other->status().ok());
  EXPECT_FALSE(Ran(harness.backend.batches(), {2}));
  EXPECT_FALSE(Ran(harness.backend.batches(), {3}));
  harness.engine->Cancel(id);  // no effect: the request has ended
  harness.engine->Cancel(12345);
}

TEST(ModelRunner, ARunningRequestThatIsCancelledEndsWithItsBatch) {
  Gate gate;
  Harness harness;
  harness.HoldReplaysAt(&gate);
  const auto first = harness.Submit(harness.MakeRequest({{1}}));
  gate.AwaitArrivals(1);
  RequestId id = 0;
  const auto cancelled = harness.Submit(harness.MakeRequest({{2}}, /*max_tokens=*/5), &id);
  const auto mate = harness.Submit(harness.MakeRequest({{3}}, /*max_tokens=*/2));
  harness.backend.OnReplay([&](const RecordedBatch& batch) {
    if (Ran({batch}, {2})) harness.engine->Cancel(id);
    return absl::OkStatus();
  });
  gate.Open();
  for (const auto& sink : {first, cancelled, mate}) sink->AwaitDone();
  EXPECT_EQ(cancelled->status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(cancelled->tokens().empty());
  EXPECT_EQ(cancelled->trace().steps, 1);
  EXPECT_EQ(mate->row_tokens(0), Greedy({3}, 2));
}

TEST(ModelRunner, ASinkMayCancelItsOwnRequest) {
  class CancellingSink : public RecordingSink {
   public:
    explicit CancellingSink(Harness* harness) : harness_(harness) {}
    void OnTokens(const GeneratedToken* tokens, int count) override {
      RecordingSink::OnTokens(tokens, count);
      harness_->engine->Cancel(id);
    }
    RequestId id = 0;

   private:
    Harness* const harness_;
  };
  Gate gate;
  Harness harness;
  harness.HoldReplaysAt(&gate);
  const auto sink = std::make_shared<CancellingSink>(&harness);
  const auto id = harness.engine->Submit(harness.MakeRequest({{1}, {2}}, /*max_tokens=*/5), sink,
                                         harness.clock.Now());
  ASSERT_TRUE(id.ok());
  sink->id = *id;
  gate.Open();
  sink->AwaitDone();
  EXPECT_EQ(sink->status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(sink->trace().steps, 1);
  EXPECT_EQ(harness.backend.batches().size(), 1u);
}

TEST(ModelRunner, AWaitingRequestThatExpiresNeverRuns) {
  Gate gate;
  Harness harness;
  harness.HoldReplaysAt(&gate);
  const auto running = harness.Submit(harness.MakeRequest({{1}}));
  gate.AwaitArrivals(1);
  Request request = harness.MakeRequest({{2}, {3}});
  request.deadline = harness.clock.Now() + milliseconds(10);
  const auto expired = harness.Submit(request);
  request.tokens = {4, 5};
  request.deadline += nanoseconds(1);
  const auto just_in_time = harness.Submit(request);
  harness.clock.Advance(milliseconds(10));
  gate.Open();
  for (const auto& sink : {running, expired, just_in_time}) sink->AwaitDone();
  EXPECT_EQ(expired->status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(Ran(harness.backend.batches(), {2}));
  EXPECT_FALSE(Ran(harness.backend.batches(), {3}));
  EXPECT_TRUE(just_in_time->status().ok());
}

// A replay takes 1 ms on the fake clock. A request that is delayed for a fuller batch starts early
// enough for its deadline. If its deadline is too close, it ends exactly at its deadline.
TEST(ModelRunner, DeadlinesAreMetWhileRequestsAreDelayed) {
  EngineOptions options = SmallOptions();
  options.batch.policy = PolicyKind::kFifoPacked;
  options.batch.max_queue_delay_us = 1000000;
  Harness harness(options);
  harness.backend.OnReplay([&](const RecordedBatch&) {
    harness.clock.Advance(milliseconds(1));
    return absl::OkStatus();
  });
  const MonoTime start = harness.clock.Now();
  // Four rows fill a batch, so they run at once.
  const auto learn = harness.Submit(harness.MakeRequest({{1}, {2}, {3}, {4}}));
  learn->AwaitDone();
  Request request = harness.MakeRequest({{5}, {6}, {7}});
  request.deadline = start + milliseconds(100);
  const auto held = harness.Submit(request);
  // The scheduler reserves twice the estimated cost.
  CostModel costs;
  costs.Restore(harness.engine->Stats()[0].costs);
  const double cost = costs.Estimate({.bucket = {.tokens = 8, .sequences = 4},
                                      .computed_tokens = 3,
                                      .context_tokens = 3,
                                      .distinct_positions = 1,
                                      .sampled_rows = 3});
  EXPECT_GT(cost, 0);
  const MonoTime launch = request.deadline - nanoseconds(std::llround(2e9 * cost));
  harness.clock.AwaitWaiter(launch);
  EXPECT_EQ(held->done_calls(), 0);
  harness.clock.Advance(launch - harness.clock.Now());
  held->AwaitDone();
  EXPECT_EQ(held->trace().first_run, launch);
}

TEST(ModelRunner, ARequestThatOutlastsItsDeadlineExpires) {
  Harness harness;
  harness.backend.OnReplay([&](const RecordedBatch&) {
    harness.clock.Advance(milliseconds(4));
    return absl::OkStatus();
  });
  Request request = harness.MakeRequest({{1}}, /*max_tokens=*/9);
  request.deadline = harness.clock.Now() + milliseconds(10);
  const auto sink = harness.Submit(request);
  sink->AwaitDone();
  EXPECT_EQ(sink->status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(sink->row_tokens(0), Greedy({1}, 2));  // drawn at 4 and 8 ms
  EXPECT_EQ(sink->trace().steps, 3);
  EXPECT_EQ(sink->trace().compute, milliseconds(12));
}

TEST(ModelRunner, OnlyTheRequestWhoseLogitsAreNotFiniteFails) {
  Gate gate;
  Harness harness(SmallOptions(), FakeConfig(), FakeBackend::Options{.poison_token = 66});
  harness.HoldReplaysAt(&gate);
  const auto first = harness.Submit(harness.MakeRequest({{1}}));
  gate.AwaitArrivals(1);
  const auto poisoned = harness.Submit(harness.MakeRequest({{2, 3}, {2, 66}}, /*max_tokens=*/4));
  const auto mate = harness.Submit(harness.MakeRequest({{4, 5}}, /*max_tokens=*/4));
  gate.Open();
  for (const auto& sink : {first, poisoned, mate}) sink->AwaitDone();
  EXPECT_EQ(poisoned->status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(poisoned->status().message()), HasSubstr("row 1 are not finite"));
  EXPECT_EQ(poisoned->trace().steps, 1);
  ASSERT_EQ(harness.backend.batches()[1].sequences.size(), 3u);  // all three ran in one batch
  EXPECT_EQ(mate->row_tokens(0), Greedy({4, 5}, 4));
  EXPECT_TRUE(mate->status().ok());
}

TEST(ModelRunner, AFailedReplayFailsOnlyItsBatch) {
  Gate gate;
  Harness harness;
  harness.HoldReplaysAt(&gate);
  const auto first = harness.Submit(harness.MakeRequest({{1}}));
  gate.AwaitArrivals(1);
  const auto failed = harness.Submit(harness.MakeRequest({{2}, std::vector<int32_t>(61, 2)}));
  const auto mate = harness.Submit(harness.MakeRequest({{2}}));
  const auto later = harness.Submit(harness.MakeRequest({{4, 5}}));
  harness.backend.OnReplay([](const RecordedBatch& batch) {
    return Ran({batch}, {2}) ? absl::InternalError("device lost") : absl::OkStatus();
  });
  gate.Open();
  for (const auto& sink : {first, failed, mate, later}) sink->AwaitDone();
  EXPECT_EQ(failed->status(), absl::InternalError("device lost"));
  EXPECT_EQ(mate->status(), absl::InternalError("device lost"));
  EXPECT_TRUE(later->status().ok());
  EXPECT_TRUE(first->status().ok());
  EXPECT_EQ(harness.observer.done(absl::StatusCode::kInternal), 2);
}

// In the first pass, only plans of fewer than 32 tokens refuse candidates; in the second, all
// plans do.
TEST(ModelRunner, AStepRunsOnAPlanThatAcceptsItOrFails) {
  for (const int32_t needed : {32, 1000}) {
    Harness harness(SmallOptions(), FakeConfig(), FakeBackend::Options{.top_needs_tokens = needed});
    Request request = harness.MakeRequest({{1, 2}});
    request.outputs = kOutputTokens | kOutputTopCandidates;
    Mutable(request.spec).num_top = 2;
    const auto sink = harness.Submit(request);
    sink->AwaitDone();
    harness.Submit(harness.MakeRequest({{3}}))->AwaitDone();
    const std::vector<BatchTrace> batches = harness.observer.batches();
    if (needed == 32) {
      EXPECT_TRUE(sink->status().ok()) << sink->status();
      ASSERT_EQ(batches.size(), 2u);
      EXPECT_EQ(batches[0].lookup, Lookup::kMissGuard);
      EXPECT_EQ(batches[0].bucket.tokens, 32);
      EXPECT_THAT(harness.observer.without_plan(), testing::IsEmpty());
    } else {
      EXPECT_THAT(harness.observer.without_plan(), testing::ElementsAre(Lookup::kMissGuard));
      EXPECT_EQ(sink->status().code(), absl::StatusCode::kFailedPrecondition);
      ASSERT_EQ(batches.size(), 1u);
    }
    EXPECT_EQ(batches.back().lookup, Lookup::kHit);
    EXPECT_EQ(harness.engine->Stats()[0].estimated_drain, nanoseconds(0));
  }
}

TEST(ModelRunner, AStepThatNoPlanAcceptsDoesNotAffectOtherRequests) {
  Gate gate;
  Harness harness(SmallOptions(), FakeConfig(), FakeBackend::Options{.top_needs_tokens = 1000});
  harness.HoldReplaysAt(&gate);
  const auto first = harness.Submit(harness.MakeRequest({{1}}));
  gate.AwaitArrivals(1);
  Request request = harness.MakeRequest({{1, 2}});
  request.outputs = kOutputTokens | kOutputTopCandidates;
  Mutable(request.spec).num_top = 2;
  const auto mate = harness.Submit(harness.MakeRequest({{4, 5}}));
  const auto refused = harness.Submit(request);
  const auto other = harness.Submit(harness.MakeRequest({{6}}));
  gate.Open();
  for (const auto& sink : {first, mate, refused, other}) sink->AwaitDone();
  EXPECT_EQ(refused->status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(harness.observer.without_plan(),
              testing::Contains(Lookup::kMissGuard).Times(testing::Ge(2)));
  EXPECT_EQ(mate->row_tokens(0), Greedy({4, 5}, 1));
  EXPECT_EQ(other->row_tokens(0), Greedy({6}, 1));
}

TEST(ModelRunner, TracesHaveTheTimesAndSizesOfSteps) {
  Harness harness;
  harness.backend.OnReplay([&](const RecordedBatch&) {
    harness.clock.Advance(milliseconds(2));
    return absl::OkStatus();
  });
  const MonoTime start = harness.clock.Now();
  const auto sink = harness.Submit(harness.MakeRequest({{1, 2, 3}}, /*max_tokens=*/2));
  sink->AwaitDone();
  const RequestTrace trace = sink->trace();
  EXPECT_EQ(trace.received, start);
  EXPECT_EQ(trace.queued, start);
  EXPECT_EQ(trace.first_run, start);
  EXPECT_EQ(trace.first_token, start + milliseconds(2));
  EXPECT_EQ(trace.done, start + milliseconds(4));
  EXPECT_EQ(trace.prompt_tokens, 3);
  EXPECT_EQ(trace.generated_tokens, 2);
  EXPECT_EQ(trace.steps, 2);
  EXPECT_EQ(trace.bucket_tokens, 8);
  EXPECT_EQ(trace.compute, milliseconds(4));

  const std::vector<BatchTrace> batches = harness.observer.batches();
  ASSERT_EQ(batches.size(), 2u);
  EXPECT_EQ(batches[1].model, harness.model.get());
  EXPECT_EQ(batches[1].useful_tokens, 1);
  EXPECT_EQ(batches[1].computed_tokens, 8);  // all of the bucket
  EXPECT_EQ(batches[1].sequences, 1);
  EXPECT_EQ(batches[1].sampled_rows, 1);
  EXPECT_EQ(batches[1].trigger, Trigger::kIdle);
  EXPECT_EQ(batches[1].lookup, Lookup::kHit);
  EXPECT_EQ(batches[1].start, start + milliseconds(2));
  EXPECT_EQ(batches[1].replay, milliseconds(2));
}

TEST(ModelRunner, StatsFollowTheQueue) {
  Gate gate;
  Harness harness;
  harness.HoldReplaysAt(&gate);
  const auto running = harness.Submit(harness.MakeRequest({{1}}));
  gate.AwaitArrivals(1);
  const auto waiting = harness.Submit(harness.MakeRequest({{1, 2}, {3, 4, 5}}, /*max_tokens=*/2));
  harness.clock.Advance(milliseconds(7));
  ModelStats stats = harness.engine->Stats()[0];
  EXPECT_EQ(stats.model, harness.model);
  EXPECT_EQ(stats.running_requests, 1);
  EXPECT_EQ(stats.waiting_requests, 1);
  EXPECT_EQ(stats.queued_tokens, 5);
  EXPECT_GT(stats.queued_bytes, 5 * 4);
  EXPECT_EQ(stats.oldest_age, milliseconds(7));
  EXPECT_EQ(stats.weight_bytes, 1000);
  EXPECT_EQ(stats.plan_memory_bytes, 10 * (8 + 16 + 32 + 64));
  EXPECT_GT(stats.slot_memory.kv, 0);
  gate.Open();
  running->AwaitDone();
  waiting->AwaitDone();
  stats = harness.engine->Stats()[0];
  EXPECT_EQ(stats.running_requests, 0);
  EXPECT_EQ(stats.waiting_requests, 0);
  EXPECT_EQ(stats.queued_tokens, 0);
  EXPECT_EQ(stats.queued_bytes, 0);
  EXPECT_EQ(stats.oldest_age, nanoseconds(0));
  EXPECT_EQ(stats.estimated_drain, nanoseconds(0));
  EXPECT_EQ(stats.steps, 3);
  ASSERT_EQ(stats.buckets.size(), 4u);
  EXPECT_EQ(stats.buckets[0].batches, 3);
  EXPECT_EQ(stats.buckets[0].hits, 3);
  EXPECT_EQ(stats.buckets[0].useful_tokens, 1 + 5 + 2);
  EXPECT_EQ(stats.buckets[0].bucket_tokens, 24);
}

}  // namespace
}  // namespace sluice
