// Tests steps that are decided and started while another step runs, or before its results are
// delivered.
#include <atomic>
#include <string>
#include <vector>

#include "base/reason.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/runner/harness.h"
#include "tests/support/gate.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;

// The device waits at the gate before each step. The order of starts, runs and deliveries is
// recorded.
class StepsAhead : public ::testing::Test {
 protected:
  explicit StepsAhead(int32_t steps_ahead = 1)
      : harness_(SmallOptions(), FakeConfig(), {.steps_ahead = steps_ahead}) {
    harness_.backend.OnStart(
        [this](int32_t sequences) { Note("start " + std::to_string(sequences)); });
    harness_.backend.OnReplay([this](const RecordedBatch& batch) {
      gate_.Pass();
      Note("run " + std::to_string(batch.sequences.size()));
      return absl::OkStatus();
    });
  }
  ~StepsAhead() override { gate_.Open(); }

  class NotingSink : public RecordingSink {
   public:
    NotingSink(StepsAhead* test, int32_t name) : test_(test), name_(std::to_string(name)) {}
    void OnTokens(const GeneratedToken* tokens, int count) override {
      test_->Note("tokens of " + name_);
      RecordingSink::OnTokens(tokens, count);
    }
    void OnDone(const absl::Status& status, Reply reply, const RequestTrace& trace) override {
      test_->Note("end of " + name_);
      RecordingSink::OnDone(status, std::move(reply), trace);
    }

   private:
    StepsAhead* const test_;
    const std::string name_;
  };

  // Submits one sequence that begins with `name`.
  std::shared_ptr<RecordingSink> Submit(int32_t name, int32_t length, int32_t max_tokens = 1) {
    std::vector<int32_t> row(static_cast<size_t>(length), 7);
    row[0] = name;
    auto sink = std::make_shared<NotingSink>(this, name);
    rows_.push_back(row);
    EXPECT_TRUE(
        harness_.engine->Submit(harness_.MakeRequest({row}, max_tokens), sink, harness_.clock.Now())
            .ok());
    sinks_.push_back(sink);
    return sink;
  }

  // Blocks the device with a first sequence during `submit`, then releases it and waits until all
  // requests have ended.
  void RunAfter(int32_t first_tokens, const std::function<void()>& submit) {
    const auto first = Submit(1, 8, first_tokens);
    gate_.AwaitArrivals(1);
    submit();
    gate_.Open();
    for (const auto& sink : sinks_) sink->AwaitDone();
    harness_.engine->Drain(MonoTime::max());
  }

  void Note(const std::string& event) {
    MutexLock lock(&mu_);
    events_.push_back(event);
  }
  std::vector<std::string> Events() {
    MutexLock lock(&mu_);
    return events_;
  }

  Gate gate_;
  Mutex mu_;
  std::vector<std::string> events_ ABSL_GUARDED_BY(mu_);
  std::vector<std::vector<int32_t>> rows_;
  std::vector<std::shared_ptr<RecordingSink>> sinks_;
  Harness harness_;
};

// Eight sequences fill two batches of four. While one batch runs only the next one is started.
TEST_F(StepsAhead, FullBatchesOverlap) {
  RunAfter(1, [&] {
    for (int32_t name = 11; name < 19; ++name) Submit(name, 8);
  });
  EXPECT_THAT(Events(),
              ElementsAre("start 1", "run 1", "start 4", "tokens of 1", "end of 1", "start 4",
                          "run 4", "tokens of 11", "tokens of 12", "tokens of 13", "tokens of 14",
                          "end of 11", "end of 12", "end of 13", "end of 14", "run 4",
                          "tokens of 15", "tokens of 16", "tokens of 17", "tokens of 18",
                          "end of 15", "end of 16", "end of 17", "end of 18"));
  for (size_t i = 0; i < rows_.size(); ++i) {
    EXPECT_EQ(sinks_[i]->row_tokens(0), Greedy(rows_[i], 1));
  }
  EXPECT_EQ(harness_.engine->Stats()[0].kv.held, 0);
}

// Until the device is free, more sequences may arrive and fill the batch.
TEST_F(StepsAhead, ABatchThatIsNotFullIsNotStartedAhead) {
  RunAfter(1, [&] {
    for (int32_t name = 11; name < 18; ++name) Submit(name, 8);
  });
  const std::vector<std::string> events = Events();
  const auto at = [&](const std::string& event) {
    return std::find(events.begin(), events.end(), event) - events.begin();
  };
  EXPECT_LT(at("run 4"), at("start 3"));
  EXPECT_LT(at("start 3"), at("tokens of 11")) << "but before the results are delivered";
  EXPECT_EQ(harness_.backend.started_ahead(), 0);
}

// The device has its tokens before the host.
TEST_F(StepsAhead, AContinuingSequenceIsAlsoInTheStepAhead) {
  RunAfter(3, [&] {
    for (int32_t name = 11; name < 19; ++name) Submit(name, 8);
  });
  EXPECT_EQ(Events()[1], "start 1") << "its second step";
  EXPECT_EQ(Events()[2], "run 1");
  EXPECT_EQ(Events()[3], "tokens of 1");
  EXPECT_EQ(Events()[4], "start 4");
  for (size_t i = 0; i < rows_.size(); ++i) {
    EXPECT_EQ(sinks_[i]->row_tokens(0), Greedy(rows_[i], i == 0 ? 3 : 1));
  }
}

class NoStepsAhead : public StepsAhead {
 protected:
  NoStepsAhead() : StepsAhead(0) {}
};

TEST_F(NoStepsAhead, ResultsComeBeforeTheNextStep) {
  RunAfter(1, [&] {
    for (int32_t name = 11; name < 15; ++name) Submit(name, 8);
  });
  const std::vector<std::string> events = Events();
  EXPECT_THAT(std::vector(events.begin(), events.begin() + 5),
              ElementsAre("start 1", "run 1", "tokens of 1", "end of 1", "start 4"));
}

// The step without memory is split only after the next step, which has already started.
TEST_F(StepsAhead, AStepWithoutMemoryRunsInPartsAfterTheNextStep) {
  std::atomic<int> failures = 0;
  harness_.backend.OnReplay([&](const RecordedBatch& batch) {
    gate_.Pass();
    const bool fails = batch.sequences.size() == 4 && batch.sequences[0][0] == 11;
    if (fails) ++failures;
    return fails ? absl::ResourceExhaustedError("no memory") : absl::OkStatus();
  });
  RunAfter(1, [&] {
    for (int32_t name = 11; name < 19; ++name) Submit(name, 8);
  });
  EXPECT_EQ(failures, 1);
  EXPECT_THAT(harness_.backend.batches(),
              ElementsAre(::testing::Field(&RecordedBatch::sequences, ::testing::SizeIs(1)),
                          ::testing::Field(&RecordedBatch::sequences, ::testing::SizeIs(4)),
                          ::testing::Field(&RecordedBatch::sequences, ::testing::SizeIs(4)),
                          ::testing::Field(&RecordedBatch::sequences, ::testing::SizeIs(2)),
                          ::testing::Field(&RecordedBatch::sequences, ::testing::SizeIs(2))));
  for (size_t i = 0; i < rows_.size(); ++i) {
    EXPECT_EQ(sinks_[i]->row_tokens(0), Greedy(rows_[i], 1)) << i;
  }
}

// Steps overlap, but their device times do not: the second begins when the first ends.
TEST_F(StepsAhead, TheDeviceTimeOfAStepBeginsWhenThePreviousStepEnds) {
  using std::chrono::microseconds;
  harness_.backend.OnReplay([&](const RecordedBatch&) {
    gate_.Pass();
    harness_.clock.Advance(microseconds(100));
    return absl::OkStatus();
  });
  RunAfter(1, [&] {
    for (int32_t name = 11; name < 19; ++name) Submit(name, 8);
  });
  EXPECT_EQ(harness_.backend.started_ahead(), 1);
  const std::vector<BatchTrace> batches = harness_.observer.batches();
  ASSERT_EQ(batches.size(), 3u);
  for (size_t i = 0; i < batches.size(); ++i) {
    EXPECT_EQ(batches[i].replay, microseconds(100)) << i;
    EXPECT_EQ(batches[i].start, batches[0].start + i * microseconds(100)) << i;
    EXPECT_EQ(batches[i].form, nanoseconds(0)) << i;
  }
}

TEST(StepsAheadHang, AHangEndsTheRunningStepAndTheOneStartedAhead) {
  EngineOptions options = SmallOptions();
  options.watchdog.hang_us = 80'000;
  options.watchdog.factor = 1;
  Gate gate;
  {
    Harness harness(options, FakeConfig(), {.steps_ahead = 1});
    Gate first_gate;
    harness.backend.OnReplay([&](const RecordedBatch& batch) {
      (batch.sequences.size() == 1 ? first_gate : gate).Pass();
      return absl::OkStatus();
    });
    std::vector<std::shared_ptr<RecordingSink>> sinks = {
        harness.Submit(harness.MakeRequest({{1}}))};
    first_gate.AwaitArrivals(1);
    for (int32_t name = 11; name < 23; ++name) {
      sinks.push_back(harness.Submit(harness.MakeRequest({{name, 5, 6}})));
    }
    first_gate.Open();
    gate.AwaitArrivals(1);
    EXPECT_EQ(harness.backend.started_ahead(), 1);
    while (harness.observer.hangs().empty()) {
      harness.clock.Advance(std::chrono::milliseconds(5));
      std::this_thread::yield();
    }
    for (size_t i = 0; i < sinks.size(); ++i) {
      sinks[i]->AwaitDone();
      EXPECT_EQ(sinks[i]->status().code(),
                i == 0 ? absl::StatusCode::kOk : absl::StatusCode::kUnavailable)
          << i;
    }
    EXPECT_EQ(harness.engine->Stats()[0].running_requests, 0);
    gate.Open();
  }
}

}  // namespace
}  // namespace sluice
