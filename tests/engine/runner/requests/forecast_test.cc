// Tests that finished requests improve the forecasts that decide about refusals, and that forecasts
// include the host's work after a step.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "engine/schedule/cost_model.h"
#include "gtest/gtest.h"
#include "tests/engine/runner/harness.h"
#include "tests/support/gate.h"
#include "tests/support/table.h"

namespace sluice {
namespace {

constexpr int32_t kGenerated = 8;

// Delays the running request outside of replays, so that the costs of plans do not include the
// delay.
class DelayingSink : public RecordingSink {
 public:
  DelayingSink(FakeClock* clock, nanoseconds delay) : clock_(clock), delay_(delay) {}
  void OnTokens(const GeneratedToken* tokens, int count) override {
    RecordingSink::OnTokens(tokens, count);
    clock_->Advance(delay_);
  }

 private:
  FakeClock* const clock_;
  const nanoseconds delay_;
};

// A server whose step takes 1 ms plus 0.1 ms for each token of its bucket.
class ForecastTest : public ::testing::Test {
 protected:
  ForecastTest() {
    harness_.backend.OnReplay([this](const RecordedBatch& batch) {
      if (Gate* gate = gate_.load(); gate != nullptr) gate->Pass();
      harness_.clock.Advance(std::chrono::milliseconds(1) +
                             batch.bucket.tokens * std::chrono::microseconds(100));
      return absl::OkStatus();
    });
  }

  // Returns a request whose rows share no prefix with any other row.
  Request Generation(int32_t prompt_length, int rows = 1) {
    std::vector<std::vector<int32_t>> prompts;
    for (; rows > 0; --rows, ++made_) {
      prompts.emplace_back(static_cast<size_t>(prompt_length), 1);
      prompts.back()[0] = made_ % 97;
      prompts.back()[1] = made_ / 97 % 97;
    }
    return harness_.MakeRequest(prompts, kGenerated);
  }

  void ServeOneByOne(int32_t prompt_length, int count) {
    for (int i = 0; i < count; ++i) harness_.Submit(Generation(prompt_length))->AwaitDone();
  }

  // Returns the shortest time to the deadline, within a tenth, for which a request is admitted
  // while a request of three rows runs. Then serves both; the running request has `delay` after
  // each token.
  nanoseconds LeastPatience(nanoseconds delay = nanoseconds(0)) {
    Gate gate;
    gate_ = &gate;
    const auto running = std::make_shared<DelayingSink>(&harness_.clock, delay);
    EXPECT_TRUE(
        harness_.engine->Submit(Generation(2, /*rows=*/3), running, harness_.clock.Now()).ok());
    gate.AwaitArrivals(1);
    nanoseconds patience = std::chrono::milliseconds(1);
    auto sink = std::make_shared<RecordingSink>();
    for (;; patience = patience * 11 / 10) {
      Request request = Generation(2);
      request.deadline = harness_.clock.Now() + patience;
      if (harness_.engine->Submit(std::move(request), sink, harness_.clock.Now()).ok()) break;
    }
    gate_ = nullptr;
    gate.Open();
    running->AwaitDone();
    sink->AwaitDone();
    return patience;
  }

  Harness harness_;

 private:
  std::atomic<Gate*> gate_ = nullptr;
  int32_t made_ = 0;
};

TEST_F(ForecastTest, ForecastsIncludeThePromptsThatWillArrive) {
  ServeOneByOne(/*prompt_length=*/40, 200);
  ServeOneByOne(/*prompt_length=*/2, 200);
  const nanoseconds among_short = LeastPatience();
  ServeOneByOne(/*prompt_length=*/40, 200);
  EXPECT_GT(LeastPatience(), among_short * 5 / 4);
}

TEST_F(ForecastTest, MissedDeadlinesRaiseForecastsAndMetDeadlinesLowerThem) {
  ServeOneByOne(/*prompt_length=*/2, 200);
  const nanoseconds first = LeastPatience();
  nanoseconds last{};
  for (int i = 0; i < 100; ++i) last = LeastPatience(/*delay=*/std::chrono::milliseconds(10));
  EXPECT_GT(last, 2 * first);
  for (int i = 0; i < 1000; ++i) last = LeastPatience();
  EXPECT_LT(last, first * 3 / 2);
}

// The expected time of a step of 10 ms, after many steps whose classifier took this time on the
// host.
struct ClassifierRow {
  const char* name;
  int32_t steps_ahead;
  int classifier_ms;
  double expected_seconds;
};
class ClassifierTable : public TableTest<ClassifierRow> {};

TEST_P(ClassifierTable, TheCostOfAStepIsTheWaitOfTheNextStep) {
  FakeClock clock;
  RecordingObserver observer;
  FakeBackend backend({.steps_ahead = row().steps_ahead});
  const auto model = LoadModel("llama", 1, SLUICE_SOURCE_DIR "/tests/goldens/families/llama_3");
  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_TRUE((*model)->classifier.has_value());
  const auto engine = Engine::Create(SmallOptions(), &backend, &clock, &observer);
  ASSERT_TRUE(engine->Serve(*model).ok());
  backend.OnReplay([&](const RecordedBatch&) {
    clock.Advance(std::chrono::milliseconds(10));
    return absl::OkStatus();
  });
  backend.OnParallelFor(
      [&](int64_t) { clock.Advance(std::chrono::milliseconds(row().classifier_ms)); });
  for (int i = 0; i < 100; ++i) {
    Request request = RequestOf(*model, {{1, 2, 3}}, 0);
    request.outputs = kOutputScores;
    const auto sink = std::make_shared<RecordingSink>();
    ASSERT_TRUE(engine->Submit(std::move(request), sink, clock.Now()).ok());
    sink->AwaitDone();
    ASSERT_TRUE(sink->status().ok()) << sink->status();
  }
  CostModel costs;
  costs.Restore(engine->Stats().front().costs);
  const double seconds = costs.Estimate({.bucket = backend.batches().back().bucket,
                                         .computed_tokens = 3,
                                         .context_tokens = 6,
                                         .distinct_positions = 3});
  EXPECT_NEAR(seconds, row().expected_seconds, 0.02 * row().expected_seconds);
}

const ClassifierRow kClassifierRows[] = {
    {.name = "OneStepAtATime", .steps_ahead = 0, .classifier_ms = 40, .expected_seconds = 0.05},
    {.name = "LongerThanTheStepAhead",
     .steps_ahead = 1,
     .classifier_ms = 40,
     .expected_seconds = 0.04},
    {.name = "AtTheSameTimeAsTheStepAhead",
     .steps_ahead = 1,
     .classifier_ms = 4,
     .expected_seconds = 0.01},
};
SLUICE_TABLE(ClassifierTable, kClassifierRows);

}  // namespace
}  // namespace sluice
