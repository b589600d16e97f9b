// Tests how requests end when the device fails, hangs or has no memory.
#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "base/reason.h"
#include "base/size_of.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/runner/harness.h"
#include "tests/support/allocation_counter.h"
#include "tests/support/gate.h"
#include "tests/support/request_spec.h"
#include "tests/support/table.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

// Makes these steps fail for lack of memory: steps of more than `most` sequences, and steps with a
// sequence that begins with `never`.
void LimitMemory(Harness* harness, size_t most, int32_t never = -1) {
  harness->backend.OnReplay([most, never](const RecordedBatch& batch) {
    for (const std::vector<int32_t>& sequence : batch.sequences) {
      if (sequence[0] == never) return absl::ResourceExhaustedError("out of pages");
    }
    return batch.sequences.size() > most ? absl::ResourceExhaustedError("out of pages")
                                         : absl::OkStatus();
  });
}

EngineOptions Wide() {
  EngineOptions options = SmallOptions();
  options.batch.max_batch_sequences = 16;
  return options;
}

// Submits requests while the first replay is held, so that they share a step.
std::vector<std::shared_ptr<RecordingSink>> RunTogether(
    Harness* harness, const std::vector<std::vector<std::vector<int32_t>>>& requests,
    const std::function<void()>& then) {
  Gate gate;
  harness->HoldReplaysAt(&gate);
  const auto first = harness->Submit(harness->MakeRequest({{1}}));
  gate.AwaitArrivals(1);
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (const auto& rows : requests) {
    sinks.push_back(harness->Submit(harness->MakeRequest(rows, /*max_tokens=*/3)));
  }
  then();
  gate.Open();
  first->AwaitDone();
  for (const auto& sink : sinks) sink->AwaitDone();
  return sinks;
}

TEST(FailingDevice, AStepWithoutMemoryRunsInParts) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    Harness harness(Wide());
    std::vector<std::vector<std::vector<int32_t>>> requests(1 + random() % 12);
    for (auto& rows : requests) {
      rows.resize(1 + random() % 3);
      for (auto& row : rows) row.assign(1 + random() % 6, static_cast<int32_t>(2 + random() % 90));
    }
    const size_t most = 1 + random() % 4;
    const auto sinks = RunTogether(&harness, requests, [&] { LimitMemory(&harness, most); });
    for (size_t i = 0; i < sinks.size(); ++i) {
      EXPECT_TRUE(sinks[i]->status().ok()) << sinks[i]->status();
      for (size_t row = 0; row < requests[i].size(); ++row) {
        EXPECT_EQ(sinks[i]->row_tokens(static_cast<int32_t>(row)), Greedy(requests[i][row], 3));
      }
    }
    EXPECT_EQ(harness.engine->Stats()[0].estimated_drain, nanoseconds(0));
    EXPECT_EQ(harness.engine->Stats()[0].kv.held, 0);
  }
}

TEST(FailingDevice, OnlyTheRowThatNeverFitsInMemoryFails) {
  Harness harness(Wide());
  const auto sinks = RunTogether(&harness, {{{2}}, {{3}, {4}}, {{5}}, {{6}}},
                                 [&] { LimitMemory(&harness, 16, /*never=*/4); });
  EXPECT_EQ(sinks[1]->status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(sinks[1]->status()), Reason::kDeviceMemory);
  EXPECT_THAT(std::string(sinks[1]->status().message()), HasSubstr("out of pages"));
  EXPECT_EQ(sinks[0]->row_tokens(0), Greedy({2}, 3));
  EXPECT_EQ(sinks[2]->row_tokens(0), Greedy({5}, 3));
  EXPECT_EQ(sinks[3]->row_tokens(0), Greedy({6}, 3));
  EXPECT_EQ(harness.observer.done(absl::StatusCode::kResourceExhausted), 1);
}

// A step whose allocations of one size fail. Its requests ask for the states of all their tokens,
// so each kind of its memory has a size of its own.
struct FailedAllocationRow {
  const char* name;
  std::vector<int32_t> lengths;  // of the requests' rows
  int64_t bytes;
  std::vector<bool> succeed;  // for each request
};
class FailedAllocationTable : public TableTest<FailedAllocationRow> {};

constexpr int64_t kStateValues = 1009;
constexpr int64_t kSummedState = kStateValues * kSizeOf<double>;
constexpr int64_t kRepliedState = kStateValues * kSizeOf<float>;

TEST_P(FailedAllocationTable, EndsOnlyRequestsOfItsStep) {
  ModelConfig config = FakeConfig();
  config.hidden_size = kStateValues;
  Harness harness(SmallOptions(), config);
  Gate gate;
  const auto run = [&](int64_t failing_bytes) {
    harness.HoldReplaysAt(&gate);
    const auto first = harness.Submit(harness.MakeRequest({{1}}));
    gate.AwaitArrivals(1);
    std::vector<std::shared_ptr<RecordingSink>> sinks;
    for (const int32_t length : row().lengths) {
      Request request =
          harness.MakeRequest({std::vector<int32_t>(static_cast<size_t>(length), 7)}, 0);
      request.outputs = kOutputTokenStates;
      sinks.push_back(harness.Submit(std::move(request)));
    }
    const FailingSize failing(failing_bytes);
    gate.Open();
    first->AwaitDone();
    for (const auto& sink : sinks) sink->AwaitDone();
    return sinks;
  };
  const auto failed = run(row().bytes);
  const bool fails = std::ranges::count(row().succeed, false) > 0;
  EXPECT_TRUE(fails || !harness.observer.step_failures().empty()) << "no allocation failed";
  const auto again = run(-1);
  for (size_t i = 0; i < failed.size(); ++i) {
    EXPECT_TRUE(again[i]->status().ok()) << again[i]->status();
    if (row().succeed[i]) {
      EXPECT_EQ(failed[i]->reply().token_states, again[i]->reply().token_states);
    } else {
      EXPECT_EQ(ReasonOf(failed[i]->status()), Reason::kMemory) << failed[i]->status();
    }
  }
  EXPECT_EQ(harness.engine->Stats()[0].kv.held, 0);
}

const FailedAllocationRow kFailedAllocationRows[] = {
    {.name = "InputsOfSeveralRequestsRunInHalves",
     .lengths = {2, 3},
     .bytes = 5 * kSummedState,
     .succeed = {true, true}},
    {.name = "InputsOfOneRequestEndIt",
     .lengths = {3},
     .bytes = 3 * kSummedState,
     .succeed = {false}},
    {.name = "ResultsOfARowEndItsRequest",
     .lengths = {2, 3},
     .bytes = 3 * kSummedState,
     .succeed = {true, false}},
    {.name = "AReplyEndsTheRequestsOfTheStep",
     .lengths = {2, 3},
     .bytes = 3 * kRepliedState,
     .succeed = {false, false}},
};
SLUICE_TABLE(FailedAllocationTable, kFailedAllocationRows);

TEST(FailingDevice, ALostDeviceEndsTheRequestsOfItsStep) {
  Harness harness;
  harness.backend.OnReplay(
      [](const RecordedBatch&) { return absl::UnavailableError("an illegal access"); });
  const auto sink = harness.Submit(harness.MakeRequest({{1}}));
  sink->AwaitDone();
  EXPECT_EQ(ReasonOf(sink->status()), Reason::kDeviceLost);
}

TEST(FailingDevice, FailedStepsAreCountedUntilOneSucceeds) {
  Harness harness;
  harness.backend.OnReplay([](const RecordedBatch&) { return absl::InternalError("lost"); });
  for (int i = 0; i < 3; ++i) harness.Submit(harness.MakeRequest({{1}}))->AwaitDone();
  EXPECT_THAT(harness.observer.step_failures(), ::testing::ElementsAre(1, 2, 3));
  EXPECT_EQ(harness.observer.recoveries(), 0);
  harness.backend.OnReplay(nullptr);
  for (int i = 0; i < 2; ++i) harness.Submit(harness.MakeRequest({{1}}))->AwaitDone();
  EXPECT_EQ(harness.observer.recoveries(), 1);
  LimitMemory(&harness, 0);
  harness.Submit(harness.MakeRequest({{1}, {2}}))->AwaitDone();
  // The whole step, which was split, and its two rows fail.
  EXPECT_THAT(harness.observer.step_failures(), ::testing::ElementsAre(1, 2, 3, 0, 1, 2));
}

// The failures of a model end when it is withdrawn, also if it is replaced by a model of the same
// name. They are reported as ended again at its end.
TEST(FailingDevice, AModelThatIsReplacedOrWithdrawnFailsNoLonger) {
  Harness harness;
  const auto fail = [&] {
    harness.backend.OnReplay([](const RecordedBatch&) { return absl::InternalError("lost"); });
    harness.Submit(harness.MakeRequest({{1}}))->AwaitDone();
    harness.backend.OnReplay(nullptr);
  };
  const int plans = harness.backend.live_plans();
  fail();
  const auto twin = FakeModel(FakeConfig());
  ASSERT_EQ(harness.engine->Exchange({.serve = {twin}, .withdraw = {}}), absl::OkStatus());
  harness.backend.AwaitLivePlans(plans);  // the old model is freed
  EXPECT_EQ(harness.observer.recoveries(), 2);
  harness.model = twin;
  fail();
  ASSERT_EQ(harness.engine->Exchange({.serve = {}, .withdraw = {twin}}), absl::OkStatus());
  harness.backend.AwaitLivePlans(0);
  EXPECT_EQ(harness.observer.recoveries(), 4);
}

EngineOptions Watched() {
  EngineOptions options = SmallOptions();
  options.watchdog.hang_us = 80'000;
  options.watchdog.factor = 1;
  return options;
}

// Advances the clock at the watchdog's pace until it has found the hang.
void Outlast(Harness* harness) {
  while (harness->observer.hangs().empty()) {
    harness->clock.Advance(milliseconds(5));
  }
}

TEST(FailingDevice, AHungReplayEndsTheRequestsOfItsModelOnly) {
  Gate gate;
  {
    Harness harness(Watched());
    const auto other = FakeModel(FakeConfig(), "other");
    ASSERT_TRUE(harness.engine->Serve(other).ok());
    harness.backend.OnReplay([&gate](const RecordedBatch& batch) {
      if (batch.sequences[0][0] == 1) gate.Pass();
      return absl::OkStatus();
    });
    RequestId id = 0;
    const auto hung = harness.Submit(harness.MakeRequest({{1}, {1, 2}}, /*max_tokens=*/5), &id);
    gate.AwaitArrivals(1);
    const auto waiting = harness.Submit(harness.MakeRequest({{3}}));
    Outlast(&harness);
    hung->AwaitDone();
    waiting->AwaitDone();
    for (const auto& sink : {hung, waiting}) {
      EXPECT_EQ(sink->status().code(), absl::StatusCode::kUnavailable);
      EXPECT_EQ(ReasonOf(sink->status()), Reason::kHung);
    }
    EXPECT_EQ(harness.observer.hangs(), std::vector<std::string>{"fake"});
    const auto refused = harness.engine->Submit(harness.MakeRequest({{4}}),
                                                std::make_shared<RecordingSink>(), MonoTime());
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(harness.observer.rejected(Reason::kHung), 1);
    harness.engine->Cancel(id);  // the id is already unknown
    const ModelStats stats = harness.engine->Stats()[0];
    EXPECT_EQ(stats.waiting_requests + stats.running_requests, 0);
    EXPECT_EQ(stats.queued_bytes, 0);

    Request request = harness.MakeRequest({{5}});
    Mutable(request.spec).model = other;
    const auto served = harness.Submit(request);
    served->AwaitDone();
    EXPECT_EQ(served->row_tokens(0), Greedy({5}, 1));
    gate.Open();  // the step ends late, and its end is not reported
  }
}

// Two requests share a step, which runs again in halves. The first half succeeds, and the second
// half hangs.
TEST(FailingDevice, ARequestThatEndedBeforeAHangKeepsItsAnswer) {
  Gate first_step, second_half;
  {
    Harness harness(Watched());
    harness.HoldReplaysAt(&first_step);
    const auto first = harness.Submit(harness.MakeRequest({{1}}));
    first_step.AwaitArrivals(1);
    const auto ended = harness.Submit(harness.MakeRequest({{2}}));
    const auto hung = harness.Submit(harness.MakeRequest({{3}}));
    harness.backend.OnReplay([&second_half](const RecordedBatch& batch) {
      if (batch.sequences.size() > 1) return absl::ResourceExhaustedError("out of pages");
      if (batch.sequences[0][0] == 3) second_half.Pass();
      return absl::OkStatus();
    });
    first_step.Open();
    first->AwaitDone();
    second_half.AwaitArrivals(1);
    Outlast(&harness);
    hung->AwaitDone();
    EXPECT_EQ(ReasonOf(hung->status()), Reason::kHung);
    EXPECT_TRUE(hung->reply().finish.empty());
    ended->AwaitDone();
    EXPECT_TRUE(ended->status().ok()) << ended->status();
    EXPECT_EQ(ended->row_tokens(0), Greedy({2}, 1));
    EXPECT_EQ(ended->reply().finish, std::vector<FinishReason>{FinishReason::kLength});
    EXPECT_EQ(harness.observer.done(absl::StatusCode::kOk), 2);
    second_half.Open();
  }
}

TEST(FailingDevice, AHangOutsideAReplayIsReported) {
  class HangingSink : public RecordingSink {
   public:
    explicit HangingSink(Gate* gate) : gate_(gate) {}
    void OnTokens(const GeneratedToken* tokens, int count) override { gate_->Pass(); }

   private:
    Gate* const gate_;
  };
  Gate gate;
  Harness harness(Watched());
  const auto sink = std::make_shared<HangingSink>(&gate);
  ASSERT_TRUE(harness.engine->Submit(harness.MakeRequest({{1}}), sink, harness.clock.Now()).ok());
  gate.AwaitArrivals(1);
  Outlast(&harness);
  EXPECT_EQ(sink->done_calls(), 0);
  gate.Open();
  sink->AwaitDone();
}

TEST(FailingDevice, ASlowStepWithinItsLimitIsNotAHang) {
  EngineOptions options = Watched();
  options.watchdog.factor = 100;
  Harness harness(options);
  // Each poll of the watchdog counts for at most 20 ms, so two seconds take a hundred polls.
  bool slow = false;
  harness.backend.OnReplay([&](const RecordedBatch&) {
    harness.clock.Advance(milliseconds(20));
    for (int i = 0; slow && i < 5; ++i) {
      harness.clock.AwaitWaiter(harness.clock.Now() + milliseconds(10));
      harness.clock.Advance(milliseconds(10));
    }
    return absl::OkStatus();
  });
  for (int i = 0; i < 50; ++i) harness.Submit(harness.MakeRequest({{1}}))->AwaitDone();
  slow = true;
  harness.Submit(harness.MakeRequest({{1}}))->AwaitDone();
  EXPECT_TRUE(harness.observer.hangs().empty());
}

}  // namespace
}  // namespace sluice
