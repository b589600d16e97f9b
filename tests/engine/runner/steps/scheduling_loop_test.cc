// Tests the order of the scheduling thread's work, on random loads.
#include "engine/runner/steps/scheduling_loop.h"

#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/engine/runner/runner_parts.h"
#include "tests/support/gate.h"

namespace sluice {
namespace {

// A loop over the parts of RunnerParts; does not use their pipeline.
struct LoopParts {
  explicit LoopParts(int32_t steps_ahead)
      : parts(SmallOptions(), {.steps_ahead = steps_ahead}),
        history(64),
        loop(parts.model.get(), &parts.prepared, parts.options, &parts.clock, &parts.observer,
             &parts.state, &parts.heartbeat, &history) {}

  std::shared_ptr<RecordingSink> Submit(const std::vector<std::vector<int32_t>>& rows,
                                        int32_t max_tokens, MonoTime deadline = MonoTime::max()) {
    parts.Admit(rows, max_tokens, deadline);
    MutexLock lock(&parts.state.mu);
    parts.state.wake.Signal();
    return parts.sink;
  }

  RunnerParts parts;
  DecisionHistory history;
  SchedulingLoop loop;
};

class SchedulingLoopTest : public ::testing::TestWithParam<int32_t> {};

// Every request ends once with all its tokens, for any number of steps ahead.
TEST_P(SchedulingLoopTest, EndsEveryRequestOnceWithItsTokens) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    LoopParts loop(GetParam());
    std::vector<std::pair<std::shared_ptr<RecordingSink>, std::vector<int32_t>>> sent;
    for (int i = 0; i < 30; ++i) {
      const std::vector<int32_t> row(1 + random() % 10, static_cast<int32_t>(2 + random() % 90));
      const auto tokens = static_cast<int32_t>(1 + random() % 4);
      sent.emplace_back(loop.Submit({row}, tokens), Greedy(row, tokens));
    }
    for (const auto& [sink, tokens] : sent) {
      sink->AwaitDone();
      EXPECT_TRUE(sink->status().ok()) << sink->status();
      EXPECT_EQ(sink->row_tokens(0), tokens);
      EXPECT_EQ(sink->done_calls(), 1);
    }
    loop.loop.Stop();
    MutexLock lock(&loop.parts.state.mu);
    EXPECT_TRUE(loop.parts.state.requests.empty());
    EXPECT_FALSE(loop.parts.state.ending);
  }
}

INSTANTIATE_TEST_SUITE_P(StepsAhead, SchedulingLoopTest, ::testing::Values(0, 1),
                         [](const auto& ahead) {
                           return ahead.param == 0 ? "OneStepAtATime" : "OneStepAhead";
                         });

TEST(SchedulingLoop, ARequestThatWaitsExpiresAtItsDeadline) {
  LoopParts loop(0);
  Gate gate;
  loop.parts.backend.OnReplay([&gate](const RecordedBatch&) {
    gate.Pass();
    return absl::OkStatus();
  });
  // The first four sequences fill the step, so the fifth waits for the next step.
  const auto running = loop.Submit({{2}, {3}, {4}, {5}}, 1);
  gate.AwaitArrivals(1);
  const auto late = loop.Submit({{6}}, 1, loop.parts.clock.Now() + std::chrono::seconds(1));
  loop.parts.clock.Advance(std::chrono::seconds(2));
  gate.Open();
  late->AwaitDone();
  EXPECT_EQ(late->status().code(), absl::StatusCode::kDeadlineExceeded);
  running->AwaitDone();
  EXPECT_TRUE(running->status().ok());
  loop.loop.Stop();
}

}  // namespace
}  // namespace sluice
