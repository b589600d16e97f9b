#include "engine/engine.h"

#include <set>
#include <thread>

#include "base/reason.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/runner/harness.h"
#include "tests/support/gate.h"
#include "tests/support/request_spec.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

absl::Status Refusal(Harness* harness, Request request) {
  const auto sink = std::make_shared<RecordingSink>();
  const absl::Status status =
      harness->engine->Submit(std::move(request), sink, harness->clock.Now()).status();
  EXPECT_EQ(sink->done_calls(), 0);
  EXPECT_EQ(sink.use_count(), 1);
  return status;
}

TEST(Engine, ServingAVersionTwiceIsAnError) {
  Harness harness;
  const auto again = FakeModel(FakeConfig());
  EXPECT_TRUE(harness.engine->Serve(again).ok());
  EXPECT_EQ(harness.engine->Models(), (std::vector<std::shared_ptr<const Model>>{again}));
  EXPECT_TRUE(harness.engine->Serve(FakeModel(FakeConfig(), "fake", 2)).ok());
  EXPECT_EQ(harness.engine->Models().size(), 2u);
}

TEST(Engine, AFailedServeReturnsTheErrorAndServesNothing) {
  Harness harness;
  harness.backend.OnPrepare([](const Bucket&) { return absl::DataLossError("broken"); });
  EXPECT_EQ(harness.engine->Serve(FakeModel(FakeConfig(), "other")).code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(harness.engine->Models().size(), 1u);
}

TEST(Engine, ResolvesNamesAndVersions) {
  Harness harness;
  for (const int64_t version : {7, 3}) {
    ASSERT_TRUE(harness.engine->Serve(FakeModel(FakeConfig(), "fake", version)).ok());
  }
  const auto version = [&](std::string_view name, std::string_view text) {
    const auto model = harness.engine->Resolve(name, text);
    return model.ok() ? (*model)->version : -static_cast<int64_t>(model.status().code());
  };
  constexpr auto kNotFound = -static_cast<int64_t>(absl::StatusCode::kNotFound);
  constexpr auto kInvalid = -static_cast<int64_t>(absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(version("fake", ""), 7);
  EXPECT_EQ(version("fake", "1"), 1);
  EXPECT_EQ(version("fake", "3"), 3);
  EXPECT_EQ(version("fake", "4"), kNotFound);
  EXPECT_EQ(version("other", ""), kNotFound);
  EXPECT_EQ(version("../fake", "1"), kNotFound);
  for (const char* text : {"x", "-1", "+1", " 1", "1 ", "1.0", "0x1", "9223372036854775808"}) {
    EXPECT_EQ(version("fake", text), kInvalid) << text;
  }
  EXPECT_EQ(version("fake", std::string_view("1\0", 2)), kInvalid);
  EXPECT_THAT(std::string(harness.engine->Resolve("fa\nke", "").status().message()),
              HasSubstr("fa\\nke"));
}

TEST(Engine, RefusesRequestsThatItCannotServe) {
  Harness harness;
  Request request = harness.MakeRequest({{1}});
  Mutable(request.spec).model = FakeModel(FakeConfig(), "unserved");
  EXPECT_EQ(Refusal(&harness, request).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(harness.observer.rejected(Reason::kNotFound), 1);

  request = harness.MakeRequest({{1}, std::vector<int32_t>(65, 1)});
  const absl::Status too_long = Refusal(&harness, request);
  EXPECT_EQ(too_long.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(too_long.message()), HasSubstr("row 1 has 65 tokens"));
  EXPECT_THAT(std::string(too_long.message()), HasSubstr("64"));
  EXPECT_EQ(harness.observer.rejected(Reason::kInput), 1);

  request = harness.MakeRequest({{1}});
  request.deadline = harness.clock.Now();
  EXPECT_EQ(Refusal(&harness, request).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(harness.observer.rejected(Reason::kDeadline), 1);
  EXPECT_EQ(harness.observer.admitted(), 0);
}

TEST(Engine, LimitsTheQueueByRequestsAndTokens) {
  Gate gate;
  EngineOptions options = SmallOptions();
  options.queue.max_requests = 3;
  options.queue.max_tokens = 20;
  options.queue.priority_share = 1;
  Harness harness(options);
  harness.HoldReplaysAt(&gate);
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  sinks.push_back(harness.Submit(harness.MakeRequest({{1, 2, 3}}, /*max_tokens=*/2)));  // 5
  gate.AwaitArrivals(1);
  sinks.push_back(harness.Submit(harness.MakeRequest({{1, 2}, {3, 4}}, /*max_tokens=*/3)));  // 10
  const absl::Status tokens = Refusal(&harness, harness.MakeRequest({{1, 2, 3, 4, 5}}));
  EXPECT_EQ(tokens.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(tokens.message()), HasSubstr("max_tokens"));
  sinks.push_back(harness.Submit(harness.MakeRequest({{1, 2, 3, 4}})));  // 5; the queue is full
  const absl::Status requests = Refusal(&harness, harness.MakeRequest({{1}}, /*max_tokens=*/0));
  EXPECT_EQ(requests.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(requests.message()), HasSubstr("max_requests"));
  EXPECT_EQ(harness.observer.rejected(Reason::kQueueFull), 2);
  const absl::Status never = Refusal(&harness, harness.MakeRequest({{1}}, /*max_tokens=*/20));
  EXPECT_EQ(never.code(), absl::StatusCode::kInvalidArgument) << "a retry cannot succeed";
  EXPECT_EQ(harness.observer.rejected(Reason::kRequest), 1);
  gate.Open();
  for (const auto& sink : sinks) sink->AwaitDone();
  // All tokens are free again once the last answer has arrived.
  harness.Submit(harness.MakeRequest({std::vector<int32_t>(19, 1)}))->AwaitDone();
}

TEST(Engine, LimitsTheMemoryOfQueuedRequests) {
  Gate gate;
  EngineOptions options = SmallOptions();
  options.queue.max_bytes = 1 << 20;
  options.queue.priority_share = 1;
  Harness harness(options);
  harness.HoldReplaysAt(&gate);
  std::vector<std::shared_ptr<RecordingSink>> sinks = {harness.Submit(harness.MakeRequest({{1}}))};
  gate.AwaitArrivals(1);
  Request large = harness.MakeRequest({{1, 2}});
  large.outputs |= kOutputTopCandidates;
  Mutable(large.spec).num_top = 40'000;  // 8 bytes each, for the row's prompt and for its token
  sinks.push_back(harness.Submit(large));
  EXPECT_GT(harness.engine->Stats()[0].queued_bytes, 640'000);
  const absl::Status full = Refusal(&harness, large);
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()), HasSubstr("max_bytes"));
  Mutable(large.spec).max_tokens = 3;
  const absl::Status never = Refusal(&harness, large);
  EXPECT_EQ(never.code(), absl::StatusCode::kInvalidArgument);
  sinks.push_back(harness.Submit(harness.MakeRequest({{1}})));
  gate.Open();
  for (const auto& sink : sinks) sink->AwaitDone();
  EXPECT_EQ(harness.engine->Stats()[0].queued_bytes, 0);
}

// A step takes 10 ms, and each request fills one.
TEST(Engine, RefusesRequestsThatWouldExpireInTheQueue) {
  Gate gate;
  Harness harness;
  int32_t first = 0;  // differs between requests, so they share no prefix
  const auto due_in = [&](int64_t ms) {
    Request request = harness.MakeRequest({std::vector<int32_t>(64, 1)});
    request.tokens[0] = first++ % 97;
    request.deadline = harness.clock.Now() + milliseconds(ms);
    return request;
  };
  harness.backend.OnReplay([&](const RecordedBatch&) {
    harness.clock.Advance(milliseconds(10));
    return absl::OkStatus();
  });
  for (int i = 0; i < 50; ++i) harness.Submit(due_in(15))->AwaitDone();
  harness.HoldReplaysAt(&gate);
  std::vector<std::shared_ptr<RecordingSink>> sinks = {harness.Submit(due_in(15))};
  gate.AwaitArrivals(1);
  while (harness.observer.rejected(Reason::kDeadlineUnreachable) == 0) {
    const auto sink = std::make_shared<RecordingSink>();
    const auto submitted = harness.engine->Submit(due_in(300), sink, harness.clock.Now());
    if (submitted.ok()) {
      sinks.push_back(sink);
      continue;
    }
    EXPECT_EQ(submitted.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(ReasonOf(submitted.status()), Reason::kDeadlineUnreachable);
    EXPECT_EQ(sink.use_count(), 1);
  }
  // 30 can be served in time; the initial margin has not been reduced yet.
  EXPECT_GE(sinks.size(), 25u);
  EXPECT_LE(sinks.size(), 33u);
  sinks.push_back(harness.Submit(due_in(20)));   // runs before them
  sinks.push_back(harness.Submit(due_in(400)));  // can wait for all of them
  Request patient = due_in(0);
  patient.deadline = MonoTime::max();
  sinks.push_back(harness.Submit(patient));
  gate.Open();
  for (const auto& sink : sinks) sink->AwaitDone();
}

TEST(Engine, DrainFinishesAcceptedRequestsAndRefusesOthers) {
  Gate gate;
  EngineOptions options = SmallOptions();
  options.batch.max_queue_delay_us = 1000000;  // a drain does not wait for it
  Harness harness(options);
  harness.HoldReplaysAt(&gate);
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (int32_t i = 0; i < 6; ++i) {
    sinks.push_back(harness.Submit(harness.MakeRequest({{i}}, /*max_tokens=*/3)));
  }
  gate.AwaitArrivals(1);
  std::thread drain([&] { harness.engine->Drain(MonoTime::max()); });
  harness.clock.AwaitWaiter(MonoTime::max());  // Drain waits; the scheduling thread is at the gate
  EXPECT_EQ(Refusal(&harness, harness.MakeRequest({{1}})).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(harness.observer.rejected(Reason::kDraining), 1);
  gate.Open();
  drain.join();
  for (int32_t i = 0; i < 6; ++i) {
    EXPECT_EQ(sinks[static_cast<size_t>(i)]->done_calls(), 1);
    EXPECT_EQ(sinks[static_cast<size_t>(i)]->row_tokens(0), Greedy({i}, 3));
  }
  EXPECT_EQ(harness.engine->Serve(FakeModel(FakeConfig(), "late")).code(),
            absl::StatusCode::kUnavailable);
}

TEST(Engine, DrainWaitsForTheLastOnDone) {
  class HeldSink : public RecordingSink {
   public:
    explicit HeldSink(Gate* gate) : gate_(gate) {}
    void OnDone(const absl::Status& status, Reply reply, const RequestTrace& trace) override {
      gate_->Pass();
      RecordingSink::OnDone(status, std::move(reply), trace);
    }

   private:
    Gate* const gate_;
  };
  Gate gate;
  Harness harness;
  const auto sink = std::make_shared<HeldSink>(&gate);
  ASSERT_TRUE(harness.engine->Submit(harness.MakeRequest({{1}}), sink, harness.clock.Now()).ok());
  gate.AwaitArrivals(1);
  std::thread drain([&] {
    harness.engine->Drain(MonoTime::max());
    EXPECT_EQ(sink->done_calls(), 1);
  });
  harness.clock.AwaitWaiter(MonoTime::max());  // Drain waits; the scheduling thread is at the gate
  gate.Open();
  drain.join();
}

TEST(Engine, DrainGivesUpAtItsDeadline) {
  Gate gate;
  Harness harness;
  harness.HoldReplaysAt(&gate);
  const auto running = harness.Submit(harness.MakeRequest({{1}}, /*max_tokens=*/5));
  gate.AwaitArrivals(1);
  const auto waiting = harness.Submit(harness.MakeRequest({{2}}));
  const MonoTime deadline = harness.clock.Now() + milliseconds(50);
  std::thread drain([&] { harness.engine->Drain(deadline); });
  harness.clock.AwaitWaiter(deadline);
  harness.clock.Advance(milliseconds(50));
  drain.join();  // returns although the replay still hangs
  gate.Open();
  running->AwaitDone();
  waiting->AwaitDone();
  EXPECT_EQ(running->status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(waiting->status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(running->tokens().empty());
  EXPECT_FALSE(Ran(harness.backend.batches(), {2}));
}

TEST(Engine, DestructionEndsAllRequests) {
  Harness harness;
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (int32_t i = 0; i < 30; ++i) {
    sinks.push_back(harness.Submit(harness.MakeRequest({{i}}, /*max_tokens=*/20)));
  }
  harness.engine.reset();
  for (const auto& sink : sinks) {
    EXPECT_EQ(sink->done_calls(), 1);
    EXPECT_EQ(sink.use_count(), 1);
    EXPECT_TRUE(sink->status().ok() || absl::IsUnavailable(sink->status())) << sink->status();
  }
}

TEST(Engine, ModelsAreServedSideBySide) {
  Gate gate;
  Harness harness;
  ModelConfig config = FakeConfig();
  config.vocab_size = 13;
  const auto other = FakeModel(config, "other");
  ASSERT_TRUE(harness.engine->Serve(other).ok());
  harness.HoldReplaysAt(&gate);
  RequestId first_id = 0, other_id = 0;
  const auto first = harness.Submit(harness.MakeRequest({{1, 2}}, /*max_tokens=*/4), &first_id);
  Request request = harness.MakeRequest({{1, 2}}, /*max_tokens=*/4);
  Mutable(request.spec).model = other;
  const auto second = harness.Submit(request, &other_id);
  EXPECT_NE(first_id, other_id);
  gate.AwaitArrivals(2);  // replays of both models run at once
  harness.engine->Cancel(first_id);
  gate.Open();
  first->AwaitDone();
  second->AwaitDone();
  EXPECT_EQ(first->status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(second->row_tokens(0), Greedy({1, 2}, 4, 13));
  EXPECT_EQ(harness.engine->Stats().size(), 2u);
}

TEST(Engine, PreparesNoPlansAfterWarmUp) {
  ModelConfig config = FakeConfig();
  config.max_positions = 128;
  EngineOptions options = SmallOptions();
  options.batch.max_batch_tokens = 256;
  Harness harness(options, config);
  const size_t prepared = harness.observer.plans().size();
  EXPECT_EQ(prepared, 6u);
  for (int32_t length = 1; length <= 100; ++length) {
    const auto sink =
        harness.Submit(harness.MakeRequest({std::vector<int32_t>(static_cast<size_t>(length), 1)}));
    sink->AwaitDone();
    ASSERT_TRUE(sink->status().ok());
  }
  EXPECT_EQ(harness.observer.plans().size(), prepared);
  for (const BatchTrace& batch : harness.observer.batches()) {
    EXPECT_EQ(batch.lookup, Lookup::kHit);
    EXPECT_GE(batch.bucket.tokens, batch.useful_tokens);
  }
}

TEST(EngineDeathTest, InvalidRequestsBreakAnInvariant) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // the engine has threads
  Harness harness;
  Request request = harness.MakeRequest({{1, 2}});
  Mutable(request.spec).lengths = {1};
  EXPECT_DEATH(Refusal(&harness, request), "broken invariant");
}

}  // namespace
}  // namespace sluice
