#include "engine/schedule/scheduler.h"

#include <chrono>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "engine/schedule/step_shape.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;

class Recorder : public SchedulerObserver {
 public:
  void OnPush(const WaitingSequence& sequence, bool arrival) override {
    calls.push_back((arrival ? "arrive " : "return ") + std::to_string(sequence.ticket));
  }
  void OnRemove(const WaitingSequence& sequence) override {
    calls.push_back("remove " + std::to_string(sequence.ticket));
  }
  void OnRevise(const WaitingSequence& sequence, const NextStep& next) override {
    calls.push_back("revise " + std::to_string(sequence.ticket) + " to " +
                    std::to_string(next.tokens));
  }
  void OnDecide(const DecisionTime&, const BatchDecision& decision,
                std::span<WaitingSequence* const> batch) override {
    std::string call = decision.launch ? "launch" : "wait";
    for (const WaitingSequence* sequence : batch) call += " " + std::to_string(sequence->ticket);
    calls.push_back(call);
  }
  void OnObserve(const StepShape& step, double) override {
    calls.push_back("observe " + std::to_string(step.computed_tokens));
  }
  void OnLadder(const Ladder& ladder) override {
    calls.push_back("ladder " + std::to_string(ladder.buckets().size()));
  }

  std::vector<std::string> calls;
};

std::shared_ptr<const Ladder> LadderOf(std::vector<int32_t> capacities) {
  std::vector<Bucket> buckets;
  for (const int32_t tokens : capacities) buckets.push_back({.tokens = tokens, .sequences = 4});
  return std::make_shared<const Ladder>(std::move(buckets));
}

TEST(Scheduler, ReportsEveryOperationToItsObserverInOrder) {
  Recorder recorder;
  Scheduler scheduler({}, std::chrono::minutes(1), LadderOf({64}), CostModel(), &recorder);
  WaitingSequence first{.ticket = 1, .tokens = 10}, second{.ticket = 2, .tokens = 20};
  std::vector<WaitingSequence*> batch;
  EXPECT_FALSE(scheduler.Decide({}, &batch).launch);
  scheduler.Arrive(&first);
  scheduler.Arrive(&second);
  scheduler.Remove(&second);
  EXPECT_TRUE(scheduler.Decide({}, &batch).launch);
  EXPECT_TRUE(scheduler.queue().empty());
  scheduler.Observe(ShapeOf(batch, {.tokens = 64, .sequences = 4}), 1e-3);
  EXPECT_GT(scheduler.costs().Estimate({.bucket = {.tokens = 64, .sequences = 4}}), 0);
  scheduler.Return(&first);
  scheduler.Revise(&first, {.tokens = 7});
  scheduler.SetLadder(LadderOf({32, 64}));
  EXPECT_EQ(scheduler.Decide({.draining = true}, &batch).bucket.tokens, 32);
  EXPECT_THAT(recorder.calls,
              ElementsAre("ladder 1", "wait", "arrive 1", "arrive 2", "remove 2", "launch 1",
                          "observe 10", "return 1", "revise 1 to 7", "ladder 2", "launch 1"));
}

TEST(Scheduler, OnlyArrivalsCountAsTraffic) {
  Scheduler scheduler({}, std::chrono::minutes(1), LadderOf({64}), CostModel(), nullptr);
  WaitingSequence sequence{.ticket = 1, .tokens = 10};
  scheduler.Arrive(&sequence);
  std::vector<WaitingSequence*> batch;
  scheduler.Decide({}, &batch);
  sequence.tokens = 1;
  scheduler.Return(&sequence);
  EXPECT_EQ(scheduler.traffic().RecentArrivals().size(), 1u);
  EXPECT_DOUBLE_EQ(scheduler.traffic().batch_tokens().total(), 1);
}

TEST(Scheduler, AnArrivalCountsWithItsWholePromptAndExpectedSteps) {
  Scheduler scheduler({}, std::chrono::minutes(1), LadderOf({64}), CostModel(), nullptr);
  WaitingSequence sequence{.ticket = 1, .tokens = 10, .later_tokens = 35, .expected_steps = 9};
  scheduler.Arrive(&sequence);
  const std::vector<Arrival> arrivals = scheduler.traffic().RecentArrivals();
  ASSERT_EQ(arrivals.size(), 1u);
  EXPECT_EQ(arrivals[0].tokens, 45);
  EXPECT_EQ(arrivals[0].steps, 9);
}

TEST(Scheduler, TheLastRunningSequenceYieldsUntilThereAreEnoughPages) {
  Scheduler scheduler({}, std::chrono::minutes(1), LadderOf({64}), CostModel(), nullptr);
  const auto at = [](int64_t us) { return MonoTime(std::chrono::microseconds(us)); };
  WaitingSequence first{.ticket = 4, .tokens = 1, .pages = 2, .running = true, .queued = at(1)};
  WaitingSequence second{.ticket = 1, .tokens = 9, .pages = 3, .running = true, .queued = at(2)};
  WaitingSequence fresh{.ticket = 2, .tokens = 9, .pages = 9, .queued = at(3)};
  WaitingSequence last{.ticket = 3, .tokens = 1, .pages = 0, .running = true, .queued = at(4)};
  for (WaitingSequence* sequence : {&last, &fresh, &second, &first}) scheduler.Return(sequence);
  EXPECT_EQ(scheduler.MustYield(5), nullptr);
  // The next step of `last` needs no page, but yielding returns the pages that it holds.
  EXPECT_EQ(scheduler.MustYield(4), &last);
  scheduler.Revise(&last, {.tokens = 9, .pages = 1, .running = false});
  EXPECT_EQ(scheduler.MustYield(4), &second);
  scheduler.Revise(&second, {.tokens = 9, .pages = 1, .running = false});
  EXPECT_EQ(scheduler.MustYield(4), nullptr);
  EXPECT_EQ(scheduler.MustYield(1), &first);
}

TEST(SchedulerDeathTest, DecidingBeforeASequenceYieldsBreaksAnInvariant) {
  Scheduler scheduler({}, std::chrono::minutes(1), LadderOf({64}), CostModel(), nullptr);
  WaitingSequence sequence{.ticket = 1, .tokens = 1, .pages = 2, .running = true};
  scheduler.Return(&sequence);
  std::vector<WaitingSequence*> batch;
  EXPECT_DEATH(scheduler.Decide({.available_pages = 1}, &batch), "broken invariant");
}

TEST(SchedulerDeathTest, ALadderKeepsItsLargestBucket) {
  Scheduler scheduler({}, std::chrono::minutes(1), LadderOf({64}), CostModel(), nullptr);
  EXPECT_DEATH(scheduler.SetLadder(LadderOf({32})), "broken invariant");
}

TEST(ShapeOf, CountsEveryPositionOnce) {
  WaitingSequence prompt{.tokens = 4};                                          // 0..3
  WaitingSequence suffix{.first_position = 2, .tokens = 3, .sampled_rows = 2};  // 2..4
  WaitingSequence decode{.first_position = 9, .tokens = 1};                     // 9
  const Bucket bucket{.tokens = 16, .sequences = 4};
  WaitingSequence* const fresh[] = {&prompt};
  WaitingSequence* const mixed[] = {&decode, &suffix, &prompt};
  EXPECT_EQ(ShapeOf(fresh, bucket).distinct_positions, 4);
  const StepShape shape = ShapeOf(mixed, bucket);
  EXPECT_EQ(shape.computed_tokens, 8);
  EXPECT_EQ(shape.context_tokens, (1 + 2 + 3 + 4) + (3 + 4 + 5) + 10);
  EXPECT_EQ(shape.distinct_positions, 6);
  EXPECT_EQ(shape.sampled_rows, 4);
  EXPECT_GE(EstimatedShapeOf(mixed, bucket).distinct_positions, shape.distinct_positions);
  EXPECT_EQ(ShapeOf(mixed, Bucket::Padded(4, 8)).computed_tokens, 32);
}

TEST(ShapeOf, CountsEveryAdapterOnce) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 100; ++round) {
    std::vector<WaitingSequence> sequences(1 + random() % 20);
    std::vector<WaitingSequence*> batch;
    std::set<uint64_t> adapters;
    for (WaitingSequence& sequence : sequences) {
      sequence = {.adapter = random() % 6, .tokens = 1};
      batch.push_back(&sequence);
      if (sequence.adapter != 0) adapters.insert(sequence.adapter);
    }
    const Bucket bucket{.tokens = 32, .sequences = 32};
    EXPECT_EQ(ShapeOf(batch, bucket).distinct_adapters, std::ssize(adapters));
    EXPECT_EQ(EstimatedShapeOf(batch, bucket).distinct_adapters, std::ssize(adapters));
  }
}

}  // namespace
}  // namespace sluice
