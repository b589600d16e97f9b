#include "engine/runner/requests/admission_control.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <optional>
#include <random>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/runner/harness.h"
#include "tests/support/table.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr MonoTime kNow{std::chrono::hours(1)};

Request RequestWith(const std::vector<size_t>& lengths, MonoTime deadline = MonoTime::max(),
                    int32_t max_tokens = 1) {
  std::vector<std::vector<int32_t>> rows;
  for (const size_t length : lengths) rows.emplace_back(length, 1);
  Request request = RequestOf(FakeModel(FakeConfig()), rows, max_tokens);
  request.deadline = deadline;
  return request;
}

// Returns a scheduler whose costs are a millisecond per token of a step.
Scheduler SchedulerWithCosts() {
  CostModel costs;
  for (int i = 0; i < 200; ++i) {
    const int32_t tokens = 8 + i % 56;
    costs.Observe({.bucket = {.tokens = 64, .sequences = 4}, .computed_tokens = tokens},
                  tokens * 1e-3);
  }
  return Scheduler(
      {}, std::chrono::minutes(1),
      std::make_shared<const Ladder>(std::vector<Bucket>{{.tokens = 64, .sequences = 4}}), costs,
      nullptr);
}

struct AdmissionControlRow {
  const char* name;
  std::vector<size_t> lengths = {4};
  MonoTime deadline = MonoTime::max();
  int32_t max_tokens = 1;
  bool draining = false;
  bool hung = false;
  int64_t other_requests = 0;  // requests whose loads are already reserved
  int64_t running = 0;
  std::optional<Reason> reason = std::nullopt;
  std::string message = "";
};
class AdmissionControlTable : public TableTest<AdmissionControlRow> {};

TEST_P(AdmissionControlTable, AdmitsOrRefusesWithTheReason) {
  AdmissionControl admission({.max_requests = 3}, /*reuses_prefixes=*/false);
  const Scheduler scheduler = SchedulerWithCosts();
  nanoseconds needed(0);
  for (int64_t i = 0; i < row().other_requests; ++i) {
    const absl::Status other = admission.Reserve(
        RequestWith({1}), {.tokens = 2, .bytes = 8, .priority = 1}, scheduler, 0, kNow, &needed);
    ASSERT_TRUE(other.ok()) << other;
  }
  if (row().draining) admission.Drain();
  if (row().hung) admission.Hang();
  const Request request = RequestWith(row().lengths, row().deadline, row().max_tokens);
  absl::Status refusal = AdmissionControl::Examine(request, 64, kNow);
  if (refusal.ok()) {
    refusal = admission.Reserve(request, {.tokens = 5, .bytes = 100, .priority = 1}, scheduler,
                                row().running, kNow, &needed);
  }
  ASSERT_EQ(refusal.ok(), !row().reason.has_value()) << refusal;
  EXPECT_THAT(std::string(refusal.message()), HasSubstr(row().message));
  if (row().reason.has_value()) {
    EXPECT_EQ(ReasonOf(refusal), *row().reason);
    EXPECT_EQ(refusal.code(), InfoOf(*row().reason).code);
  }
  EXPECT_EQ(admission.bytes(), 8 * row().other_requests + (refusal.ok() ? 100 : 0));
}

const AdmissionControlRow kAdmissionControlRows[] = {
    {.name = "AnOpenModelAdmits"},
    {.name = "ARowOfAllPositionsIsAdmitted", .lengths = {64}},
    {.name = "ARowBeyondThePositionsIsTooLarge",
     .lengths = {4, 65},
     .reason = Reason::kInput,
     .message = "row 1 has 65 tokens; expected 1 to 64 (the model's max_positions)"},
    {.name = "ADeadlineThatHasPassedIsMissed",
     .deadline = kNow,
     .reason = Reason::kDeadline,
     .message = "the deadline passed before the request was queued"},
    {.name = "ADrainingModelIsUnavailable",
     .draining = true,
     .reason = Reason::kDraining,
     .message = "draining"},
    {.name = "AHangIsReportedEvenWhileDraining",
     .draining = true,
     .hung = true,
     .reason = Reason::kHung,
     .message = "does not answer"},
    {.name = "AFullBudgetNamesItsLimit",
     .other_requests = 3,
     .reason = Reason::kQueueFull,
     .message = "3"},
    {.name = "ADistantDeadlineIsWithinReach",
     .deadline = kNow + milliseconds(10'000),
     .running = 3},
    // Each of the nine steps after the prompt carries four sequences, which takes about 4 ms.
    {.name = "ADeadlineShorterThanTheGenerationIsOutOfReach",
     .deadline = kNow + milliseconds(20),
     .max_tokens = 10,
     .running = 3,
     .reason = Reason::kDeadlineUnreachable,
     .message = "not be complete before the deadline"},
};
SLUICE_TABLE(AdmissionControlTable, kAdmissionControlRows);

// The scheduler takes a millisecond for a token.
TEST(AdmissionControl, AModelOfOneLengthRefusesOtherLengths) {
  EXPECT_TRUE(AdmissionControl::Examine(RequestWith({8, 8}), 8, kNow, 8).ok());
  const absl::Status refusal = AdmissionControl::Examine(RequestWith({8, 7}), 8, kNow, 8);
  EXPECT_EQ(ReasonOf(refusal), Reason::kInput);
  EXPECT_EQ(refusal.message(),
            "row 1 has 7 tokens; expected exactly 8, as in every row of this model");
}

TEST(AdmissionControl, TheWaitLimitsRequestsWithoutADeadline) {
  AdmissionControl admission({.max_wait_us = 50'000, .priority_share = 0.8},
                             /*reuses_prefixes=*/false);
  Scheduler scheduler = SchedulerWithCosts();
  const auto reserve = [&](int priority, MonoTime deadline = MonoTime::max()) {
    nanoseconds needed(0);
    return admission.Reserve(RequestWith({4}, deadline), {.tokens = 5, .priority = priority},
                             scheduler, 0, kNow, &needed);
  };
  WaitingSequence first, second;
  first.ticket = 1;
  first.tokens = 45;
  first.queued = second.queued = kNow;
  scheduler.Arrive(&first);
  EXPECT_TRUE(reserve(1).ok()) << "45 of 50 ms";
  EXPECT_FALSE(reserve(2).ok()) << "45 of 40 ms";
  second.ticket = 2;
  second.tokens = 15;
  scheduler.Arrive(&second);
  const absl::Status refusal = reserve(1);
  EXPECT_EQ(ReasonOf(refusal), Reason::kQueueFull);
  EXPECT_EQ(refusal.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refusal.message()), HasSubstr("engine.queue.max_wait of 50ms"));
  EXPECT_TRUE(reserve(2, kNow + milliseconds(40)).ok()) << "only the near deadline counts";
  EXPECT_FALSE(reserve(2, kNow + milliseconds(41)).ok()) << "a later deadline has no effect";
  EXPECT_FALSE(reserve(2, kNow + std::chrono::minutes(1)).ok());
  scheduler.Remove(&first);
  EXPECT_TRUE(reserve(2).ok());
}

TEST(AdmissionControl, ARefusalForTheWaitHoldsForItsLevelUntilReconsidered) {
  AdmissionControl admission({.max_wait_us = 50'000, .priority_share = 0.8},
                             /*reuses_prefixes=*/false);
  Scheduler scheduler = SchedulerWithCosts();
  WaitingSequence first;
  first.ticket = 1;
  first.tokens = 45;
  first.queued = kNow;
  scheduler.Arrive(&first);
  constexpr nanoseconds kFar = std::chrono::hours(1);
  EXPECT_TRUE(admission.Standing(2, kFar).ok()) << "no request was refused";
  nanoseconds needed(0);
  const absl::Status refusal = admission.Reserve(RequestWith({4}), {.tokens = 5, .priority = 2},
                                                 scheduler, 0, kNow, &needed);
  ASSERT_FALSE(refusal.ok()) << "45 of 40 ms";
  EXPECT_EQ(admission.Standing(2, kFar), refusal);
  EXPECT_EQ(ReasonOf(admission.Standing(2, kFar)), Reason::kQueueFull);
  EXPECT_FALSE(admission.Standing(2, milliseconds(50) + nanoseconds(1)).ok());
  EXPECT_TRUE(admission.Standing(2, milliseconds(50)).ok()) << "its own forecast decides";
  EXPECT_TRUE(admission.Standing(1, kFar).ok()) << "45 of 50 ms";
  AdmissionControl ending = admission, draining = admission;
  const RequestLoad admitted = {.tokens = 5, .priority = 1};
  ASSERT_TRUE(ending.Reserve(RequestWith({4}), admitted, scheduler, 0, kNow, &needed).ok());
  EXPECT_FALSE(ending.Standing(2, kFar).ok());
  ending.Return(admitted);
  EXPECT_TRUE(ending.Standing(2, kFar).ok()) << "a request has ended";
  draining.Drain();
  EXPECT_TRUE(draining.Standing(2, kFar).ok()) << "draining has another code";
  admission.Reconsider();
  EXPECT_TRUE(admission.Standing(2, kFar).ok());
}

TEST(AdmissionControl, OnlyRefusalsThatApplyToEveryRequestAreKept) {
  AdmissionControl admission({.max_requests = 3, .max_tokens = 20, .max_caller_share = 0.5},
                             /*reuses_prefixes=*/false);
  const Scheduler scheduler = SchedulerWithCosts();
  const auto reserve = [&](int64_t tokens, const char* caller) {
    nanoseconds needed(0);
    return !admission
                .Reserve(RequestWith({1}), {.tokens = tokens, .priority = 1, .caller = caller},
                         scheduler, 0, kNow, &needed)
                .ok();
  };
  const auto stands = [&] { return !admission.Standing(1, std::chrono::hours(1)).ok(); };
  EXPECT_FALSE(reserve(2, "greedy"));
  EXPECT_TRUE(reserve(19, "modest"));
  EXPECT_FALSE(stands()) << "a shorter request fits";
  EXPECT_TRUE(reserve(21, "modest"));
  EXPECT_FALSE(stands()) << "only this request is too large";
  EXPECT_FALSE(reserve(2, "greedy"));
  EXPECT_TRUE(reserve(2, "greedy"));
  EXPECT_FALSE(stands()) << "another caller finds room";
  EXPECT_FALSE(reserve(2, "modest"));
  EXPECT_TRUE(reserve(2, "third"));
  EXPECT_TRUE(stands()) << "three requests are all";
}

// One caller has 45 ms of the waiting work.
TEST(AdmissionControl, ACallerGetsAtMostItsShareOfTheWait) {
  AdmissionControl admission({.max_wait_us = 50'000, .max_caller_share = 0.8},
                             /*reuses_prefixes=*/false);
  Scheduler scheduler = SchedulerWithCosts();
  const auto reserve = [&](const char* caller) {
    nanoseconds needed(0);
    return admission.Reserve(RequestWith({4}), {.tokens = 5, .priority = 1, .caller = caller},
                             scheduler, 0, kNow, &needed);
  };
  EXPECT_TRUE(reserve("greedy").ok());
  WaitingSequence sequence;
  sequence.ticket = 1;
  sequence.tokens = 45;
  sequence.queued = kNow;
  scheduler.Arrive(&sequence);
  EXPECT_FALSE(reserve("greedy").ok()) << "it has more than 40 of 50 ms";
  EXPECT_TRUE(reserve("").ok()) << "callers are not identified";
  EXPECT_TRUE(reserve("modest").ok());
}

// Ten times the capacity for two seconds of virtual time, with no or distant deadlines. Admitted
// requests begin within the limit, and when the overload ends, the queue is at most the limit long.
TEST(AdmissionControl, AfterAnOverloadTheWaitIsWithinTheLimit) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    constexpr milliseconds kBound(50), kLongest(20);
    AdmissionControl admission({.max_wait_us = 50'000, .priority_share = 1},
                               /*reuses_prefixes=*/false);
    Scheduler scheduler = SchedulerWithCosts();
    std::deque<WaitingSequence> sequences;
    size_t begun = 0;
    MonoTime device_free = kNow, longest = kNow;
    for (MonoTime now = kNow; now < kNow + std::chrono::seconds(2); now += milliseconds(1)) {
      const size_t tokens = 1 + random() % kLongest.count();
      const MonoTime deadline =
          random() % 2 == 0
              ? MonoTime::max()
              : now + kBound + milliseconds(static_cast<int64_t>(1 + random() % 60'000));
      nanoseconds needed(0);
      const absl::Status refusal =
          admission.Reserve(RequestWith({tokens}, deadline), {.tokens = 1, .priority = 1},
                            scheduler, 0, now, &needed);
      if (refusal.ok()) {
        WaitingSequence& arrived = sequences.emplace_back();
        arrived.ticket = sequences.size();
        arrived.tokens = static_cast<int32_t>(tokens);
        arrived.queued = now;
        scheduler.Arrive(&arrived);
      }
      for (; device_free <= now && begun < sequences.size(); ++begun) {
        WaitingSequence& first = sequences[begun];
        EXPECT_LE(std::max(device_free, first.queued), first.queued + kBound + 2 * kLongest);
        device_free = std::max(device_free, first.queued) + milliseconds(first.tokens);
        scheduler.Remove(&first);
      }
      longest = std::max(longest, kNow + admission.Wait(0, scheduler));
    }
    EXPECT_LE(longest, kNow + kBound + kLongest);
    EXPECT_GT(longest, kNow + kBound - kLongest) << "the load was too low";
  }
}

// A step of four sequences takes four milliseconds, and a generation has 40 steps.
TEST(AdmissionControl, TheWaitIncludesTheStepsOfGenerationsWithoutAPlace) {
  AdmissionControl admission({.max_wait_us = 50'000, .priority_share = 1},
                             /*reuses_prefixes=*/false);
  Scheduler scheduler = SchedulerWithCosts();
  WaitingSequence sequences[2];
  for (uint64_t i = 0; i < 2; ++i) {
    sequences[i].ticket = i;
    sequences[i].tokens = 4;
    sequences[i].expected_steps = 41;
    sequences[i].queued = kNow;
    scheduler.Arrive(&sequences[i]);
  }
  const auto wait_ms = [&](int64_t running) {
    return std::chrono::duration<double, std::milli>(admission.Wait(running, scheduler)).count();
  };
  EXPECT_NEAR(wait_ms(0), 8, 1) << "places are free";
  EXPECT_NEAR(wait_ms(2), 8, 1) << "exactly two";
  EXPECT_NEAR(wait_ms(3), 8 + 40, 2) << "one place is missing";
  EXPECT_NEAR(wait_ms(4), 8 + 80, 4);
  nanoseconds needed(0);
  const auto refused = [&](int64_t running) {
    return !admission.Reserve(RequestWith({4}), {.tokens = 5}, scheduler, running, kNow, &needed)
                .ok();
  };
  EXPECT_FALSE(refused(3));
  EXPECT_TRUE(refused(4));
}

TEST(AdmissionControl, TheWaitIncludesCandidatesToScore) {
  AdmissionControl admission({.max_wait_us = 50'000}, /*reuses_prefixes=*/false);
  const Scheduler scheduler = SchedulerWithCosts();
  nanoseconds needed(0);
  const RequestLoad scoring{.tokens = 5, .candidates = 1000, .priority = 1};
  EXPECT_TRUE(admission.Reserve(RequestWith({4}), scoring, scheduler, 0, kNow, &needed).ok());
  EXPECT_EQ(admission.Wait(0, scheduler), nanoseconds(0)) << "their cost is not known";
  admission.Learn(AdmissionControl::ScoredCandidates{.count = 100, .duration = milliseconds(6)});
  EXPECT_EQ(admission.Wait(0, scheduler), milliseconds(60));
  EXPECT_FALSE(
      admission.Reserve(RequestWith({4}), {.tokens = 5, .priority = 1}, scheduler, 0, kNow, &needed)
          .ok());
  admission.Return(scoring);
  EXPECT_EQ(admission.Wait(0, scheduler), nanoseconds(0));
}

TEST(AdmissionControl, ReturningALoadMakesRoom) {
  AdmissionControl admission({.max_requests = 1}, /*reuses_prefixes=*/false);
  const Scheduler scheduler = SchedulerWithCosts();
  const RequestLoad load{.tokens = 2, .bytes = 8, .priority = 1};
  nanoseconds needed(0);
  EXPECT_TRUE(admission.Reserve(RequestWith({1}), load, scheduler, 0, kNow, &needed).ok());
  EXPECT_FALSE(admission.Reserve(RequestWith({1}), load, scheduler, 0, kNow, &needed).ok());
  admission.Return(load);
  EXPECT_EQ(admission.bytes(), 0);
  EXPECT_TRUE(admission.Reserve(RequestWith({1}), load, scheduler, 0, kNow, &needed).ok());
}

TEST(AdmissionControl, LearnsTheGeneratedShareOfMaxTokens) {
  AdmissionControl admission({}, /*reuses_prefixes=*/false);
  EXPECT_EQ(admission.LaterSteps(101), 100);  // before anything was learned, all of them
  EXPECT_EQ(admission.LaterSteps(0), 0);
  for (int i = 0; i < 500; ++i) {
    admission.Learn(
        AdmissionControl::GeneratedRow{.tokens = 26, .most_tokens = 101, .computed_prompt = 8});
  }
  EXPECT_EQ(admission.LaterSteps(101), 25);
  EXPECT_EQ(admission.LaterSteps(1), 0);
}

// Forecasts that were too short make admission stricter; requests without a deadline have no
// effect.
TEST(AdmissionControl, MissedDeadlinesRaiseTheForecast) {
  const Scheduler scheduler = SchedulerWithCosts();
  const auto refused = [&](const AdmissionControl& trained, milliseconds allowed) {
    AdmissionControl admission = trained;
    nanoseconds needed(0);
    return !admission
                .Reserve(RequestWith({4}, kNow + allowed, /*max_tokens=*/10),
                         {.tokens = 41, .bytes = 8, .priority = 1}, scheduler, 3, kNow, &needed)
                .ok();
  };
  AdmissionControl admission({}, /*reuses_prefixes=*/false);
  const AdmissionControl fresh = admission;
  milliseconds bound(1);
  while (refused(fresh, bound)) bound += milliseconds(1);
  for (int i = 0; i < 50; ++i) {
    admission.Learn(AdmissionControl::Outcome{.queued = kNow,
                                              .ended = kNow + 2 * bound,
                                              .deadline = MonoTime::max(),
                                              .needed = bound,
                                              .status = absl::OkStatus()});
  }
  EXPECT_FALSE(refused(admission, bound));
  for (int i = 0; i < 50; ++i) {
    admission.Learn(AdmissionControl::Outcome{.queued = kNow,
                                              .ended = kNow + 2 * bound,
                                              .deadline = kNow + bound,
                                              .needed = bound,
                                              .status = absl::DeadlineExceededError("late")});
  }
  EXPECT_TRUE(refused(admission, bound));
}

}  // namespace
}  // namespace sluice
