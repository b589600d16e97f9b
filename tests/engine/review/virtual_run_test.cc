#include "engine/review/virtual_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "engine/schedule/step_budget.h"
#include "engine/schedule/step_shape.h"
#include "gtest/gtest.h"
#include "tests/support/scheduling.h"

namespace sluice {
namespace {

constexpr std::chrono::minutes kHalfLife(5);

double Cost(const StepShape& step) { return 60e-6 + 0.04e-6 * step.bucket.tokens; }

struct Scenario {
  BatchOptions batch;
  std::shared_ptr<const Ladder> ladder;
  std::vector<Arrival> arrivals;
  bool recompute = false;
  int32_t chunk_tokens = 0;
  HostTimes host;
};

// Returns a random scenario: any policy, limits, priorities, deadlines, several steps, overload and
// underload.
Scenario RandomScenario(uint64_t seed) {
  std::mt19937_64 random(seed);
  Scenario scenario;
  scenario.batch.policy = static_cast<PolicyKind>(random() % 4);
  scenario.batch.max_overtakes = static_cast<int32_t>(random() % 3 == 0 ? 0 : random() % 20);
  scenario.batch.max_queue_delay_us = random() % 2 == 0 ? 0 : static_cast<int64_t>(random() % 2000);
  scenario.batch.priority_step_us = static_cast<int64_t>(random() % 5000);
  const LadderLimits limits{.max_tokens = 2048,
                            .max_sequences = 1 + static_cast<int32_t>(random() % 64),
                            .max_positions = 1024};
  scenario.ladder = std::make_shared<const Ladder>(*BuildLadder(
      {.strategy = StrategyKind::kGeometric, .ratio = 2}, scenario.batch.policy, limits));
  if (random() % 2 == 0) {
    scenario.host = {.wake_seconds = 1e-6 * static_cast<double>(random() % 100),
                     .turnaround_seconds = 1e-6 * static_cast<double>(random() % 200),
                     .turnaround_seconds_per_sequence = 1e-6 * static_cast<double>(random() % 20),
                     .arrival_seconds = 1e-6 * static_cast<double>(random() % 5)};
  }
  const bool deadlines = random() % 2 == 0;
  const bool steps = random() % 2 == 0;
  scenario.recompute = random() % 2 == 0;
  scenario.batch.prefill_tokens = random() % 3 == 0 ? 0 : 1 + static_cast<int32_t>(random() % 600);
  scenario.batch.continuous = random() % 4 != 0;
  if (scenario.batch.policy == PolicyKind::kPacked) {
    scenario.chunk_tokens = RunLimitsOf(scenario.batch, scenario.ladder->largest()).chunk_tokens;
  }
  std::exponential_distribution<double> gap(static_cast<double>(1 + random() % 100) * 1e-3);
  double now_us = 0;
  for (size_t i = 0; i < 300 + random() % 200; ++i) {
    now_us += gap(random);
    Arrival& arrival = scenario.arrivals.emplace_back();
    arrival.at = AtMicroseconds(static_cast<int64_t>(now_us));
    arrival.tokens = 1 + static_cast<int32_t>(random() % (random() % 4 == 0 ? 1000 : 200));
    if (steps) arrival.steps = 1 + static_cast<int32_t>(random() % 6);
    arrival.priority = 1 + static_cast<int>(random() % kPriorityLevels);
    if (deadlines && random() % 2 == 0) {
      arrival.deadline = arrival.at + std::chrono::microseconds(1 + random() % 20'000);
    }
  }
  return scenario;
}

// Checks the invariants of every batch and of every end, and records both for comparison.
class Witness {
 public:
  explicit Witness(const Scenario& scenario)
      : scenario_(scenario), ends_(scenario.arrivals.size()) {}

  VirtualResult Run() {
    Scheduler scheduler(scenario_.batch, kHalfLife, scenario_.ladder, CostModel(), nullptr);
    const VirtualRunOptions options{
        .cost = Cost,
        .host = scenario_.host,
        .recompute = scenario_.recompute,
        .chunk_tokens = scenario_.chunk_tokens,
        .on_batch = [this](const VirtualBatch& batch) { OnBatch(batch); },
        .on_done = [this](size_t arrival, MonoTime end, bool ran) { OnDone(arrival, end, ran); }};
    const VirtualResult result = RunVirtually(scenario_.arrivals, options, &scheduler);
    EXPECT_TRUE(scheduler.queue().empty());
    for (const std::vector<MonoTime>& ends : ends_) EXPECT_EQ(ends.size(), 1u);
    EXPECT_EQ(result.sequences + result.expired, static_cast<int64_t>(scenario_.arrivals.size()));
    return result;
  }

  const std::vector<std::vector<MonoTime>>& ends() const { return ends_; }
  const std::vector<uint64_t>& tickets() const { return tickets_; }

 private:
  void OnBatch(const VirtualBatch& batch) {
    BatchSize size{};
    for (const WaitingSequence* sequence : batch.sequences) {
      size.tokens += sequence->tokens;
      ++size.sequences;
      size.longest = std::max(size.longest, sequence->tokens);
      EXPECT_GE(batch.start, sequence->queued);
      EXPECT_GT(sequence->deadline, batch.start);
      EXPECT_TRUE(ends_[sequence->ticket].empty());
      // A sequence that is expected to miss its deadline may be overtaken and still run, because
      // the estimate was wrong. Running sequences may overtake any other.
      if (sequence->deadline == MonoTime::max() && !AnyRuns()) {
        EXPECT_LE(sequence->overtaken, MaxOvertakes());
      }
      tickets_.push_back(sequence->ticket);
    }
    EXPECT_EQ(size, batch.decision.size);
    EXPECT_TRUE(batch.decision.bucket.Fits(size));
    EXPECT_GE(batch.start, earliest_start_);
    EXPECT_GT(batch.end, batch.start);
    earliest_start_ = batch.end + scenario_.host.Turnaround(batch.sequences.size());
  }

  void OnDone(size_t arrival, MonoTime end, bool ran) {
    ends_[arrival].push_back(end);
    if (!ran) {
      EXPECT_GE(end, scenario_.arrivals[arrival].deadline);
    }
  }

  bool AnyRuns() const {
    return scenario_.batch.policy == PolicyKind::kPacked && !scenario_.recompute;
  }
  int32_t MaxOvertakes() const {
    const bool in_order = scenario_.batch.policy == PolicyKind::kFifoPacked ||
                          scenario_.batch.policy == PolicyKind::kStaticPadded;
    return in_order ? 0 : scenario_.batch.max_overtakes;
  }

  const Scenario& scenario_;
  std::vector<std::vector<MonoTime>> ends_;  // by arrival; each has exactly one
  std::vector<uint64_t> tickets_;
  MonoTime earliest_start_{};
};

// Thousands of seeds of about 300 sequences each make a million sequences.
TEST(RunVirtually, BatchesAndEndsKeepTheInvariantsOfTheScheduler) {
  int64_t sequences = 0;
  for (uint64_t seed = 1; seed <= 3300; ++seed) {
    SCOPED_TRACE(seed);
    const Scenario scenario = RandomScenario(seed);
    sequences += static_cast<int64_t>(scenario.arrivals.size());
    Witness witness(scenario);
    witness.Run();
    if (HasFailure()) return;
    if (seed % 10 != 0) continue;
    Witness again(scenario);
    again.Run();
    ASSERT_EQ(witness.tickets(), again.tickets());
    ASSERT_EQ(witness.ends(), again.ends());
  }
  EXPECT_GT(sequences, 1'000'000);
}

TEST(RunVirtually, CountsServedAndExpiredSequences) {
  const std::vector<Arrival> arrivals = {
      {.at = AtMicroseconds(0), .tokens = 100},
      {.at = AtMicroseconds(10), .tokens = 50, .steps = 2},
      {.at = AtMicroseconds(20), .tokens = 1, .deadline = AtMicroseconds(30)}};
  for (const bool recompute : {false, true}) {
    Scheduler scheduler({.policy = PolicyKind::kFifoPacked}, kHalfLife,
                        std::make_shared<const Ladder>(Ladder(
                            {{.tokens = 128, .sequences = 8}, {.tokens = 256, .sequences = 8}})),
                        CostModel(), nullptr);
    const VirtualResult result = RunVirtually(
        arrivals, {.cost = [](const StepShape&) { return 100e-6; }, .recompute = recompute},
        &scheduler);
    EXPECT_EQ(result.sequences, 2);
    EXPECT_EQ(result.expired, 1);  // while the first batch ran
    EXPECT_EQ(result.batches, 3);
    EXPECT_EQ(result.useful_tokens, 100 + 50 + (recompute ? 51 : 1));
    EXPECT_EQ(result.bucket_tokens, 3 * 128);
    EXPECT_DOUBLE_EQ(result.span_seconds, 300e-6);
    EXPECT_DOUBLE_EQ(result.busy_seconds, 300e-6);
    EXPECT_DOUBLE_EQ(result.latency_sum_seconds, 100e-6 + 290e-6);
  }
}

TEST(RunVirtually, ArrivalsDuringHostWorkShareTheNextStep) {
  const std::vector<Arrival> arrivals = {{.at = AtMicroseconds(0), .tokens = 100},
                                         {.at = AtMicroseconds(50), .tokens = 10},
                                         {.at = AtMicroseconds(130), .tokens = 20},
                                         {.at = AtMicroseconds(500), .tokens = 10},
                                         {.at = AtMicroseconds(520), .tokens = 5}};
  Scheduler scheduler(BatchOptions(), kHalfLife,
                      std::make_shared<const Ladder>(Ladder({{.tokens = 128, .sequences = 8}})),
                      CostModel(), nullptr);
  std::vector<MonoTime> starts, ends;
  std::vector<int32_t> tokens;
  const VirtualResult result =
      RunVirtually(arrivals,
                   {.cost = [](const StepShape&) { return 100e-6; },
                    .host = {.wake_seconds = 30e-6,
                             .turnaround_seconds = 25e-6,
                             .turnaround_seconds_per_sequence = 15e-6},
                    .on_batch =
                        [&](const VirtualBatch& batch) {
                          starts.push_back(batch.start);
                          tokens.push_back(batch.decision.size.tokens);
                        },
                    .on_done = [&](size_t, MonoTime end, bool) { ends.push_back(end); }},
                   &scheduler);
  EXPECT_EQ(starts, (std::vector{AtMicroseconds(0), AtMicroseconds(140), AtMicroseconds(530)}));
  EXPECT_EQ(tokens, (std::vector<int32_t>{100, 30, 15}));
  EXPECT_EQ(ends, (std::vector{AtMicroseconds(100), AtMicroseconds(240), AtMicroseconds(240),
                               AtMicroseconds(630), AtMicroseconds(630)}))
      << "results are available before the turnaround";
  EXPECT_DOUBLE_EQ(result.busy_seconds, 300e-6);
  EXPECT_DOUBLE_EQ(result.span_seconds, 630e-6);
}

TEST(RunVirtually, APromptInChunksIsOneStep) {
  const std::vector<Arrival> arrivals = {{.at = AtMicroseconds(0), .tokens = 100, .steps = 3},
                                         {.at = AtMicroseconds(5), .tokens = 30}};
  Scheduler scheduler({.prefill_tokens = 40}, kHalfLife,
                      std::make_shared<const Ladder>(Ladder({{.tokens = 128, .sequences = 8}})),
                      CostModel(), nullptr);
  std::vector<std::vector<int32_t>> batches;
  const VirtualResult result =
      RunVirtually(arrivals,
                   {.cost = [](const StepShape&) { return 10e-6; },
                    .chunk_tokens = 40,
                    .on_batch =
                        [&](const VirtualBatch& batch) {
                          auto& tokens = batches.emplace_back();
                          for (const auto* sequence : batch.sequences) {
                            tokens.push_back(sequence->tokens);
                            EXPECT_EQ(sequence->running, sequence->first_position > 0);
                          }
                        }},
                   &scheduler);
  EXPECT_EQ(batches, (std::vector<std::vector<int32_t>>{{40}, {40, 30}, {20}, {1}, {1}}));
  EXPECT_EQ(result.sequences, 2);
  EXPECT_EQ(result.useful_tokens, 132);
}

struct DraftedRun {
  VirtualResult result{};
  std::vector<MonoTime> ends;  // by arrival
};

// Runs a long generation and, if `others` is true, short requests next to it, on a device where a
// step takes 100 us and 1 us for each token.
DraftedRun RunWithDrafts(const VirtualDrafts& drafts, bool others) {
  std::vector<Arrival> arrivals(1);
  arrivals[0] = {.at = AtMicroseconds(0), .tokens = 10, .steps = 400};
  for (int i = 1; others && i < 20; ++i) {
    Arrival& arrival = arrivals.emplace_back();
    arrival.at = AtMicroseconds(i * 1013);
    arrival.tokens = 20;
  }
  const auto cost = [](const StepShape& step) { return 100e-6 + 1e-6 * step.computed_tokens; };
  Scheduler scheduler(
      {.max_batch_sequences = 8}, kHalfLife,
      std::make_shared<const Ladder>(std::vector<Bucket>{{.tokens = 64, .sequences = 8}}),
      CostModel(ComputedRows::OfBatch()), nullptr);
  DraftedRun run;
  run.ends.resize(arrivals.size());
  run.result = RunVirtually(
      arrivals,
      {.cost = cost,
       .drafts = drafts,
       .on_done = [&](size_t arrival, MonoTime end, bool) { run.ends[arrival] = end; }},
      &scheduler);
  return run;
}

TEST(RunVirtually, RightDraftsShortenAGeneration) {
  const DraftedRun plain = RunWithDrafts({}, false);
  EXPECT_EQ(plain.result.drafted, 0);
  const DraftedRun right = RunWithDrafts({.tokens = 8, .acceptance = 0.9}, false);
  EXPECT_GT(right.result.accepted, 200);
  EXPECT_GT(right.result.drafted, right.result.accepted);
  EXPECT_LT(right.result.span_seconds, 0.5 * plain.result.span_seconds);
  // Each token of the draft model takes a third of a step.
  const DraftedRun by_model =
      RunWithDrafts({.tokens = 8, .acceptance = 0.9, .seconds = 33e-6}, false);
  EXPECT_GT(by_model.result.accepted, 100);
  EXPECT_GT(by_model.result.span_seconds, right.result.span_seconds);
  EXPECT_LT(by_model.result.span_seconds, plain.result.span_seconds);
  const DraftedRun wrong = RunWithDrafts({.tokens = 8, .acceptance = 0.001}, false);
  EXPECT_EQ(wrong.result.drafted, 0);
  EXPECT_EQ(RunWithDrafts({.tokens = 8, .acceptance = 0.9, .seconds = 1e-3}, false).result.drafted,
            0);
}

TEST(RunVirtually, ARequestWaitsAtMostForOneTokenOfTheDraftModel) {
  const VirtualDrafts drafts{.tokens = 8, .acceptance = 0.9, .seconds = 33e-6};
  const DraftedRun run = RunWithDrafts(drafts, true);
  EXPECT_GT(run.result.accepted, 100);
  // One token of the draft model, or a step with drafts; then the step of both sequences.
  const double longest = std::max(33e-6 + 101e-6, 100e-6 + 9e-6) + 100e-6 + 21e-6;
  for (size_t i = 1; i < run.ends.size(); ++i) {
    EXPECT_LE(Seconds(run.ends[i] - AtMicroseconds(static_cast<int64_t>(i) * 1013)),
              longest + 1e-9);
  }
}

TEST(RunVirtually, APromptAboveTheLargestBucketIsCut) {
  Scheduler scheduler(BatchOptions(), kHalfLife,
                      std::make_shared<const Ladder>(Ladder({{.tokens = 64, .sequences = 8}})),
                      CostModel(), nullptr);
  std::vector<int32_t> tokens;
  const VirtualRunOptions options{.cost = Cost, .on_batch = [&](const VirtualBatch& batch) {
                                    tokens.push_back(batch.decision.size.tokens);
                                  }};
  const Arrival arrivals[] = {{.at = AtMicroseconds(0), .tokens = 150}};
  RunVirtually(arrivals, options, &scheduler);
  EXPECT_EQ(tokens, std::vector<int32_t>({64, 64, 22}));
}

TEST(RunVirtuallyDeathTest, ArrivalsAndTimersAscendInTime) {
  Scheduler scheduler({}, kHalfLife,
                      std::make_shared<const Ladder>(Ladder({{.tokens = 16, .sequences = 8}})),
                      CostModel(), nullptr);
  VirtualRunOptions options{.cost = Cost};
  std::vector<Arrival> arrivals = {{.at = AtMicroseconds(6), .tokens = 10},
                                   {.at = AtMicroseconds(5), .tokens = 10}};
  EXPECT_DEATH(RunVirtually(arrivals, options, &scheduler), "arrivals_");
  options.on_timer = [](MonoTime now, Scheduler*) { return now; };
  arrivals.pop_back();
  EXPECT_DEATH(RunVirtually(arrivals, options, &scheduler), "timer_");
}

TEST(RunVirtually, ArrivalsDelayStretchedHostWork) {
  std::vector<Arrival> arrivals;
  // The arrival at 105 is in time only because the arrival at 50 has delayed the end at 100; 135 is
  // passed on after that step.
  for (const int64_t at : {0, 50, 105, 135, 1000}) {
    arrivals.push_back({.at = AtMicroseconds(at), .tokens = 10});
  }
  std::vector<std::pair<MonoTime, MonoTime>> steps;
  Scheduler scheduler({}, kHalfLife,
                      std::make_shared<const Ladder>(Ladder({{.tokens = 64, .sequences = 8}})),
                      CostModel(), nullptr);
  RunVirtually(
      arrivals,
      {.cost = [](const StepShape&) { return 100e-6; },
       .host = {.wake_seconds = 5e-6, .turnaround_seconds = 30e-6, .arrival_seconds = 10e-6},
       .stretch = [](MonoTime now,
                     nanoseconds work) { return work * (now < AtMicroseconds(100) ? 1 : 2); },
       .on_batch = [&](const VirtualBatch& batch) { steps.emplace_back(batch.start, batch.end); }},
      &scheduler);
  EXPECT_EQ(steps, (std::vector<std::pair<MonoTime, MonoTime>>{
                       {AtMicroseconds(0), AtMicroseconds(120)},
                       {AtMicroseconds(190), AtMicroseconds(390)},
                       {AtMicroseconds(1010), AtMicroseconds(1210)}}));
}

TEST(RunVirtually, TimersFireAtTheirTimes) {
  const std::vector<Arrival> arrivals = {{.at = AtMicroseconds(5), .tokens = 10},
                                         {.at = AtMicroseconds(95), .tokens = 10}};
  std::vector<MonoTime> fired;
  Scheduler scheduler({}, kHalfLife,
                      std::make_shared<const Ladder>(Ladder({{.tokens = 16, .sequences = 8}})),
                      CostModel(), nullptr);
  RunVirtually(arrivals,
               {.cost = [](const StepShape&) { return 10e-6; },
                .on_timer =
                    [&](MonoTime now, Scheduler*) {
                      fired.push_back(now);
                      return fired.size() == 3 ? MonoTime::max()
                                               : now + std::chrono::microseconds(40);
                    }},
               &scheduler);
  EXPECT_EQ(fired,
            (std::vector<MonoTime>{AtMicroseconds(5), AtMicroseconds(45), AtMicroseconds(85)}));
}

// The costs of a device that also reads the matrices of each adapter of a step.
constexpr double kOfStep = 100e-6, kOfToken = 0.5e-6;

struct MixedRun {
  double mean_error = 0;  // relative, of the estimates in the second half of the run
  double adapter_seconds = 0;
  int64_t sequences = 0;
};

// Runs arrivals and compares each estimate of the scheduler with the cost of the step.
MixedRun RunMixed(const std::vector<Arrival>& arrivals, const BatchOptions& batch,
                  double of_adapter) {
  const LadderLimits limits{.max_tokens = 1024, .max_sequences = 64, .max_positions = 1024};
  Scheduler scheduler(
      batch, kHalfLife,
      std::make_shared<const Ladder>(
          *BuildLadder({.strategy = StrategyKind::kGeometric, .ratio = 2}, batch.policy, limits)),
      CostModel(ComputedRows::OfBatch()), nullptr);
  const auto cost = [&](const StepShape& step) {
    return kOfStep + kOfToken * step.computed_tokens + of_adapter * step.distinct_adapters;
  };
  MixedRun run;
  int estimates = 0;
  const auto on_batch = [&](const VirtualBatch& step) {
    if (step.sequences.front()->ticket < arrivals.size() / 2) return;
    const StepShape shape = ShapeOf(step.sequences, step.decision.bucket);
    const double error = scheduler.costs().Estimate(shape) / cost(shape) - 1;
    run.mean_error += (std::abs(error) - run.mean_error) / ++estimates;
  };
  run.sequences =
      RunVirtually(arrivals, {.cost = cost, .on_batch = on_batch}, &scheduler).sequences;
  run.adapter_seconds = scheduler.costs().state().law[6];
  return run;
}

TEST(VirtualRun, TheSchedulerLearnsTheCostOfAMixOfAdapters) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  for (uint64_t round = 0; round < 10; ++round) {
    SCOPED_TRACE(round);
    std::mt19937_64 random(seed + round);
    BatchOptions batch;
    batch.policy = round % 2 == 0 ? PolicyKind::kPacked : PolicyKind::kFifoPacked;
    batch.max_queue_delay_us = static_cast<int64_t>(random() % 2000);
    const double of_adapter = 1e-6 * static_cast<double>(20 + random() % 100);
    std::exponential_distribution<double> gap(static_cast<double>(2 + random() % 4) * 1e-3);
    std::vector<Arrival> arrivals;
    double now_us = 0;
    for (int i = 0; i < 3000; ++i) {
      now_us += gap(random);
      arrivals.push_back({.at = AtMicroseconds(static_cast<int64_t>(now_us)),
                          .tokens = 1 + static_cast<int32_t>(random() % 100),
                          .adapter = random() % 3 == 0 ? 0 : 1 + random() % 16});
    }
    const MixedRun run = RunMixed(arrivals, batch, of_adapter);
    EXPECT_EQ(run.sequences, std::ssize(arrivals));
    EXPECT_NEAR(run.adapter_seconds, of_adapter, 0.1 * of_adapter);
    EXPECT_LT(run.mean_error, 0.02);
    // Without adapters the same device has no such cost.
    for (Arrival& arrival : arrivals) arrival.adapter = 0;
    const MixedRun plain = RunMixed(arrivals, batch, of_adapter);
    EXPECT_EQ(plain.adapter_seconds, 0);
    EXPECT_LT(plain.mean_error, 0.02);
  }
}

}  // namespace
}  // namespace sluice
