// Checks the guarantees of the engine under random submissions, cancellations and deadlines from
// several threads.
#include <algorithm>
#include <atomic>
#include <optional>
#include <random>
#include <thread>

#include "gtest/gtest.h"
#include "tests/engine/runner/harness.h"
#include "tests/support/request_spec.h"

namespace sluice {
namespace {

using std::chrono::microseconds;

// The data that a submitting thread keeps about a request.
struct Submitted {
  std::shared_ptr<RecordingSink> sink;
  RequestId id = 0;
  std::vector<std::vector<int32_t>> rows;
  int32_t max_tokens = 0;
  MonoTime deadline = MonoTime::max();
  // The number of batches that had begun when Cancel returned. One more may have been decided by
  // then.
  std::optional<size_t> cancelled_after;
};

class RandomLoad {
 public:
  RandomLoad(Harness* harness, uint64_t seed, int thread, int32_t most_tokens = 4)
      : harness_(harness),
        random_(seed * 1000 + static_cast<uint64_t>(thread)),
        thread_(thread),
        most_tokens_(most_tokens) {}

  void Run() {
    for (int i = 0; i < 40; ++i) {
      SubmitOne();
      if (Draw(0, 3) == 0) CancelOne();
      if (Draw(0, 3) == 0) std::this_thread::yield();
    }
  }

  const std::vector<Submitted>& submitted() const { return submitted_; }

 private:
  int32_t Draw(int32_t low, int32_t high) {
    return low + static_cast<int32_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }

  void SubmitOne() {
    Submitted next;
    for (int32_t rows = Draw(1, 3); rows > 0; --rows) {
      // The first two tokens identify the row, so that the batches show which rows ran.
      next.rows.push_back({1000 + thread_, 2000 + next_row_++});
      for (int32_t extra = Draw(0, 18); extra > 0; --extra) {
        next.rows.back().push_back(Draw(0, 96));
      }
    }
    next.max_tokens = Draw(0, most_tokens_);
    if (Draw(0, 2) == 0) next.deadline = harness_->clock.Now() + microseconds(Draw(1, 20000));
    Request request = harness_->MakeRequest(next.rows, next.max_tokens);
    request.deadline = next.deadline;
    Mutable(request.spec).priority = Draw(1, kPriorityLevels);
    next.sink = std::make_shared<RecordingSink>();
    const auto id = harness_->engine->Submit(request, next.sink, harness_->clock.Now());
    if (!id.ok()) {
      EXPECT_TRUE(absl::IsResourceExhausted(id.status()) || absl::IsDeadlineExceeded(id.status()))
          << id.status();
      return;
    }
    next.id = *id;
    submitted_.push_back(std::move(next));
  }

  void CancelOne() {
    if (submitted_.empty()) return;
    Submitted& victim = submitted_[random_() % submitted_.size()];
    harness_->engine->Cancel(victim.id);
    if (!victim.cancelled_after) victim.cancelled_after = harness_->backend.batches().size();
  }

  Harness* const harness_;
  std::mt19937_64 random_;
  const int thread_;
  const int32_t most_tokens_;
  int32_t next_row_ = 0;
  std::vector<Submitted> submitted_;
};

// Makes replays take a time of the fake clock that grows with their bucket, and records when each
// began.
class BeginTimes {
 public:
  void RecordOn(Harness* harness) {
    harness->backend.OnReplay([this, harness](const RecordedBatch& batch) {
      times_.push_back(harness->clock.Now());
      harness->clock.Advance(microseconds(200 + 20 * batch.bucket.tokens));
      return absl::OkStatus();
    });
  }
  // Requires that the engine is idle.
  const std::vector<MonoTime>& times() const { return times_; }

 private:
  std::vector<MonoTime> times_;  // written by the scheduling thread
};

bool Names(const std::vector<int32_t>& sequence, const std::vector<int32_t>& row) {
  return sequence.size() >= 2 && sequence[0] == row[0] && sequence[1] == row[1];
}

// Expects a row's tokens to be a prefix of the tokens that the row generates by itself, and all of
// them if the request succeeded.
void ExpectTokens(const Submitted& submitted) {
  const bool ok = submitted.sink->status().ok();
  for (size_t row = 0; row < submitted.rows.size(); ++row) {
    const auto got = submitted.sink->row_tokens(static_cast<int32_t>(row));
    auto expected = Greedy(submitted.rows[row], submitted.max_tokens);
    ASSERT_LE(got.size(), expected.size());
    if (!ok) expected.resize(got.size());
    ASSERT_EQ(got, expected);
  }
}

// Expects that no batch with a row of the request was decided after its deadline or cancellation.
// With `ahead` 1, a batch is decided when the previous batch begins.
void ExpectNotRunTooLate(const Submitted& submitted, const std::vector<RecordedBatch>& batches,
                         const std::vector<MonoTime>& begun, size_t ahead) {
  bool ran = false;
  for (size_t b = 0; b < batches.size(); ++b) {
    for (const std::vector<int32_t>& sequence : batches[b].sequences) {
      for (const std::vector<int32_t>& row : submitted.rows) {
        if (!Names(sequence, row)) continue;
        ran = true;
        ASSERT_LT(begun[b < ahead ? 0 : b - ahead], submitted.deadline);
        if (submitted.cancelled_after) {
          ASSERT_LE(b, *submitted.cancelled_after + ahead);
        }
      }
    }
  }
  ASSERT_EQ(ran, submitted.sink->trace().steps > 0);
}

// Reviews the ladder repeatedly while requests run; returns how often it changed.
int SwitchLaddersDuring(Harness* harness, uint64_t seed) {
  std::mt19937_64 random(seed);
  int changes = 0;
  for (int i = 0; i < 12; ++i) {
    const auto report = harness->engine->Review("fake", "", /*force=*/true);
    EXPECT_TRUE(report.ok()) << report.status();
    if (report.ok() && report->changed) ++changes;
    for (uint64_t pause = random() % 50; pause > 0; --pause) std::this_thread::yield();
  }
  return changes;
}

int PlansOfLadder(const Engine& engine) {
  const ModelStats stats = engine.Stats()[0];
  return static_cast<int>(
      std::count_if(stats.buckets.begin(), stats.buckets.end(),
                    [](const BucketStats& bucket) { return bucket.in_ladder; }));
}

struct Outcome {
  int changes = 0;
  int started_ahead = 0;
};

struct Variant {
  bool switching = false;  // whether the ladder changes during the run
  int32_t steps_ahead = 0;
  int32_t most_tokens = 4;
};

Outcome ExpectPromisesKept(uint64_t seed, const EngineOptions& options, const Variant& variant) {
  BeginTimes begin_times;
  Harness harness(options, FakeConfig(), {.steps_ahead = variant.steps_ahead});
  begin_times.RecordOn(&harness);
  std::vector<std::unique_ptr<RandomLoad>> loads;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 3; ++thread) {
    loads.push_back(std::make_unique<RandomLoad>(&harness, seed, thread, variant.most_tokens));
  }
  for (const auto& load : loads) threads.emplace_back([&load] { load->Run(); });
  Outcome outcome;
  if (variant.switching) outcome.changes = SwitchLaddersDuring(&harness, seed);
  for (std::thread& thread : threads) thread.join();
  harness.engine->Drain(MonoTime::max());

  outcome.started_ahead = harness.backend.started_ahead();
  const std::vector<RecordedBatch> batches = harness.backend.batches();
  int admitted = 0;
  for (const auto& load : loads) {
    for (const Submitted& submitted : load->submitted()) {
      ++admitted;
      EXPECT_EQ(submitted.sink->done_calls(), 1);
      EXPECT_EQ(submitted.sink.use_count(), 1);  // the engine no longer holds a reference
      ExpectTokens(submitted);
      ExpectNotRunTooLate(submitted, batches, begin_times.times(),
                          static_cast<size_t>(variant.steps_ahead));
      if (::testing::Test::HasFatalFailure()) return outcome;
    }
  }
  const RecordingObserver& observer = harness.observer;
  EXPECT_EQ(observer.admitted(), admitted);
  EXPECT_EQ(observer.done(), admitted);
  EXPECT_EQ(observer.done(absl::StatusCode::kOk) + observer.done(absl::StatusCode::kCancelled) +
                observer.done(absl::StatusCode::kDeadlineExceeded),
            admitted);
  const ModelStats stats = harness.engine->Stats()[0];
  EXPECT_EQ(stats.waiting_requests + stats.running_requests, 0);
  EXPECT_EQ(stats.queued_tokens, 0);
  EXPECT_EQ(stats.queued_bytes, 0);
  EXPECT_EQ(stats.estimated_drain, nanoseconds(0));
  for (const BatchTrace& batch : observer.batches()) {
    EXPECT_TRUE(batch.bucket.Fits({static_cast<int32_t>(batch.useful_tokens), batch.sequences,
                                   /*longest=*/1}));
  }
  // A review may be preparing plans for a ladder that is not in use yet.
  while (harness.backend.live_plans() != PlansOfLadder(*harness.engine)) std::this_thread::yield();
  return outcome;
}

TEST(EngineProperty, GuaranteesHoldUnderRandomLoad) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    EngineOptions options = SmallOptions();
    options.queue.max_requests = seed % 2 == 0 ? 4096 : 12;
    options.batch.max_batch_sequences = 1 + static_cast<int32_t>(seed % 5);
    ExpectPromisesKept(seed, options, {});
    if (HasFatalFailure()) return;
  }
}

// Half of the loads generate nothing, so that a step can always be decided while another runs.
TEST(EngineProperty, GuaranteesHoldWhileStepsAreStartedAhead) {
  int started_ahead = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    EngineOptions options = SmallOptions();
    options.batch.max_batch_sequences = 1 + static_cast<int32_t>(seed % 5);
    options.batch.policy = seed % 3 == 0 ? PolicyKind::kFifoPacked : PolicyKind::kPacked;
    started_ahead +=
        ExpectPromisesKept(
            seed, options,
            {.switching = seed % 7 == 0, .steps_ahead = 1, .most_tokens = seed % 2 == 0 ? 1 : 4})
            .started_ahead;
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(started_ahead, 100);
}

TEST(EngineProperty, GuaranteesHoldWhileLaddersSwitch) {
  int changes = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    EngineOptions options = SmallOptions();
    options.ladder.strategy = StrategyKind::kAdaptive;
    options.ladder.review.interval_us = seed % 2 == 0 ? 5000 : 0;
    options.ladder.max_buckets = 2 + static_cast<int32_t>(seed % 6);
    changes += ExpectPromisesKept(seed, options, {.switching = true}).changes;
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(changes, 0);
}

// With a delay the scheduler waits for the clock, which does not advance here. Only full batches
// and Drain launch a step.
TEST(EngineProperty, GuaranteesHoldWhileRequestsAreDelayed) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    EngineOptions options = SmallOptions();
    options.batch.max_queue_delay_us = 3000;
    if (seed % 2 == 0) options.batch.policy = PolicyKind::kFifoPacked;
    ExpectPromisesKept(seed, options, {});
    if (HasFatalFailure()) return;
  }
}

// Replays fail and rows are not finite, while other requests are cancelled.
TEST(EngineProperty, EveryRequestEndsOnceUnderFaults) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Harness harness(SmallOptions(), FakeConfig(),
                    {.poison_token = 50, .steps_ahead = static_cast<int32_t>(seed % 2)});
    int replays = 0;
    harness.backend.OnReplay([&](const RecordedBatch&) {
      return ++replays % 5 == 0 ? absl::InternalError("fault") : absl::OkStatus();
    });
    RandomLoad load(&harness, seed, 0);
    load.Run();
    harness.engine->Drain(MonoTime::max());
    for (const Submitted& submitted : load.submitted()) {
      ASSERT_EQ(submitted.sink->done_calls(), 1);
      ExpectTokens(submitted);
    }
    EXPECT_EQ(harness.observer.done(), static_cast<int>(load.submitted().size()));
    EXPECT_GT(harness.observer.done(absl::StatusCode::kInternal), 0);
    EXPECT_EQ(harness.engine->Stats()[0].queued_bytes, 0);
  }
}

}  // namespace
}  // namespace sluice
