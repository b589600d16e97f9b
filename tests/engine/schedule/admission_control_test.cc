#include "engine/schedule/admission_control.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <optional>
#include <random>
#include <string>

#include "engine/runner/requests/active_request.h"
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

// Reserves `load` for a request, and returns the refusal.
absl::Status Reserve(AdmissionControl* admission, const Request& request, const RequestLoad& load,
                     const Scheduler& scheduler, int64_t running, MonoTime now) {
  Applicant applicant = ApplicantOf(request);
  applicant.load = load;
  return admission->Reserve(applicant, scheduler, running, now).refusal;
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
  AdmissionControl admission({.queue = {.max_requests = 3}});
  const Scheduler scheduler = SchedulerWithCosts();
  for (int64_t i = 0; i < row().other_requests; ++i) {
    const absl::Status other = Reserve(
        &admission, RequestWith({1}), {.tokens = 2, .bytes = 8, .priority = 1}, scheduler, 0, kNow);
    ASSERT_TRUE(other.ok()) << other;
  }
  if (row().draining) admission.Drain();
  if (row().hung) admission.Hang();
  const Request request = RequestWith(row().lengths, row().deadline, row().max_tokens);
  absl::Status refusal = ExamineRequest(request, 64, kNow);
  if (refusal.ok()) {
    refusal = Reserve(&admission, request, {.tokens = 5, .bytes = 100, .priority = 1}, scheduler,
                      row().running, kNow);
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
  EXPECT_TRUE(ExamineRequest(RequestWith({8, 8}), 8, kNow, 8).ok());
  const absl::Status refusal = ExamineRequest(RequestWith({8, 7}), 8, kNow, 8);
  EXPECT_EQ(ReasonOf(refusal), Reason::kInput);
  EXPECT_EQ(refusal.message(),
            "row 1 has 7 tokens; expected exactly 8, as in every row of this model");
}

TEST(AdmissionControl, TheWaitLimitsRequestsWithoutADeadline) {
  AdmissionControl admission({.queue = {.max_wait_us = 50'000, .priority_share = 0.8}});
  Scheduler scheduler = SchedulerWithCosts();
  const auto reserve = [&](int priority, MonoTime deadline = MonoTime::max()) {
    return Reserve(&admission, RequestWith({4}, deadline), {.tokens = 5, .priority = priority},
                   scheduler, 0, kNow);
  };
  WaitingSequence first, second;
  first.ticket = 1;
  first.tokens = 45;
  first.queued = second.queued = kNow;
  first.priority = second.priority = 1;
  scheduler.Arrive(&first);
  EXPECT_TRUE(reserve(1).ok()) << "45 of 50 ms";
  EXPECT_THAT(std::string(reserve(2).message()),
              HasSubstr("engine.queue.max_wait, 50ms, allows: 40ms at priority 2"));
  second.ticket = 2;
  second.tokens = 15;
  scheduler.Arrive(&second);
  const absl::Status refusal = reserve(1);
  EXPECT_EQ(ReasonOf(refusal), Reason::kQueueFull);
  EXPECT_EQ(refusal.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refusal.message()), HasSubstr("allows: 50ms at priority 1"));
  EXPECT_TRUE(reserve(2, kNow + milliseconds(40)).ok()) << "only the near deadline counts";
  EXPECT_EQ(ReasonOf(reserve(2, kNow + milliseconds(41))), Reason::kDeadlineUnreachable)
      << "it would wait for too long in the backlog";
  EXPECT_TRUE(reserve(2, kNow + std::chrono::minutes(1)).ok()) << "it waits in the backlog";
  scheduler.Remove(&first);
  EXPECT_TRUE(reserve(2).ok());
}

TEST(AdmissionControl, ARefusalForTheWaitHoldsForItsLevelUntilReconsidered) {
  AdmissionControl admission({.queue = {.max_wait_us = 50'000, .priority_share = 0.8}});
  Scheduler scheduler = SchedulerWithCosts();
  WaitingSequence first;
  first.ticket = 1;
  first.tokens = 45;
  first.queued = kNow;
  first.priority = 1;
  scheduler.Arrive(&first);
  EXPECT_TRUE(admission.Standing(0, 2, MonoTime::max(), kNow).ok()) << "no request was refused";
  const absl::Status refusal =
      Reserve(&admission, RequestWith({4}), {.tokens = 5, .priority = 2}, scheduler, 0, kNow);
  ASSERT_FALSE(refusal.ok()) << "45 of 40 ms";
  EXPECT_EQ(admission.Standing(0, 2, MonoTime::max(), kNow), refusal);
  EXPECT_EQ(ReasonOf(admission.Standing(0, 2, MonoTime::max(), kNow)), Reason::kQueueFull);
  EXPECT_TRUE(admission.Standing(0, 2, kNow + milliseconds(51), kNow).ok()) << "it may be deferred";
  EXPECT_TRUE(admission.Standing(0, 2, kNow + milliseconds(50), kNow).ok())
      << "its own forecast decides";
  EXPECT_TRUE(admission.Standing(0, 1, MonoTime::max(), kNow).ok()) << "45 of 50 ms";
  AdmissionControl ending = admission, draining = admission;
  const RequestLoad admitted = {.tokens = 5, .priority = 1};
  ASSERT_TRUE(Reserve(&ending, RequestWith({4}), admitted, scheduler, 0, kNow).ok());
  EXPECT_FALSE(ending.Standing(0, 2, MonoTime::max(), kNow).ok());
  ending.Return(admitted);
  EXPECT_TRUE(ending.Standing(0, 2, MonoTime::max(), kNow).ok()) << "a request has ended";
  draining.Drain();
  EXPECT_TRUE(draining.Standing(0, 2, MonoTime::max(), kNow).ok()) << "draining has another code";
  admission.Reconsider();
  EXPECT_TRUE(admission.Standing(0, 2, MonoTime::max(), kNow).ok());
}

TEST(AdmissionControl, OnlyRefusalsThatApplyToEveryRequestAreKept) {
  AdmissionControl admission(
      {.queue = {.max_requests = 3, .max_tokens = 20, .max_caller_share = 0.5}});
  const Scheduler scheduler = SchedulerWithCosts();
  const auto reserve = [&](int64_t tokens, const char* caller) {
    return !Reserve(&admission, RequestWith({1}),
                    {.tokens = tokens, .priority = 1, .caller = caller}, scheduler, 0, kNow)
                .ok();
  };
  const auto stands = [&] { return !admission.Standing(0, 1, MonoTime::max(), kNow).ok(); };
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
  AdmissionControl admission({.queue = {.max_wait_us = 50'000, .max_caller_share = 0.8}});
  Scheduler scheduler = SchedulerWithCosts();
  const auto reserve = [&](const char* caller) {
    return Reserve(&admission, RequestWith({4}), {.tokens = 5, .priority = 1, .caller = caller},
                   scheduler, 0, kNow);
  };
  EXPECT_TRUE(reserve("greedy").ok());
  WaitingSequence sequence;
  sequence.ticket = 1;
  sequence.tokens = 45;
  sequence.queued = kNow;
  sequence.priority = 1;
  scheduler.Arrive(&sequence);
  EXPECT_FALSE(reserve("greedy").ok()) << "it has more than 40 of 50 ms";
  EXPECT_TRUE(reserve("").ok()) << "callers are not identified";
  EXPECT_TRUE(reserve("modest").ok());
}

// Returns the sequences of a request of 20 rows of 45 ms each, which wait.
std::deque<WaitingSequence> QueueBulk(uint32_t caller, int priority, Scheduler* scheduler) {
  std::deque<WaitingSequence> rows(20);
  for (WaitingSequence& row : rows) {
    row.ticket = 1000 + (&row - &rows.front());
    row.tokens = 45;
    row.queued = kNow;
    row.caller = caller;
    row.priority = priority;
    scheduler->Arrive(&row);
  }
  return rows;
}

// Callers take turns and more urgent levels are first, so a long request of a caller does not delay
// these. The costs are a millisecond per token.
TEST(AdmissionControl, TheWaitIsThatOfTheRequestsPlace) {
  const auto refused = [](const Applicant& applicant, uint32_t bulk_caller) {
    AdmissionControl admission({.queue = {.max_wait_us = 100'000, .priority_share = 1}});
    Scheduler scheduler = SchedulerWithCosts();
    const auto rows = QueueBulk(bulk_caller, 2, &scheduler);
    const Admission decision = admission.Reserve(applicant, scheduler, 0, kNow);
    EXPECT_EQ(
        !decision.refusal.ok(),
        !admission.Standing(applicant.caller, applicant.load.priority, MonoTime::max(), kNow).ok());
    return !decision.refusal.ok();
  };
  const auto applicant = [](uint32_t caller, int priority) {
    return Applicant{
        .load = {.tokens = 4, .priority = priority}, .caller = caller, .prompt_tokens = 4};
  };
  EXPECT_TRUE(refused(applicant(1, 2), 1)) << "900 of 100 ms are ahead";
  EXPECT_FALSE(refused(applicant(2, 2), 1)) << "another caller";
  EXPECT_TRUE(refused(applicant(2, 3), 1)) << "a less urgent level";
  EXPECT_FALSE(refused(applicant(1, 1), 1)) << "a more urgent level";
  EXPECT_TRUE(refused(applicant(0, 2), 0)) << "without callers, the order is that of arrival";
}

TEST(AdmissionControl, ARefusalForTheWaitHoldsOnlyForItsCaller) {
  AdmissionControl admission({.queue = {.max_wait_us = 100'000}});
  Scheduler scheduler = SchedulerWithCosts();
  const auto rows = QueueBulk(1, 2, &scheduler);
  const Applicant applicant{.load = {.tokens = 4}, .caller = 1, .prompt_tokens = 4};
  ASSERT_FALSE(admission.Reserve(applicant, scheduler, 0, kNow).refusal.ok());
  EXPECT_FALSE(admission.Standing(1, kDefaultPriority, MonoTime::max(), kNow).ok());
  EXPECT_TRUE(admission.Standing(2, kDefaultPriority, MonoTime::max(), kNow).ok());
}

// Requests of two callers wait in the backlog. Less than a full batch is ahead of the one whose
// caller has nothing in the queue.
TEST(AdmissionControl, ALongQueueOfACallerDoesNotKeepOthersInTheBacklog) {
  AdmissionControl admission({.queue = {.max_wait_us = 100'000}, .priority_step = milliseconds(1)});
  Scheduler scheduler = SchedulerWithCosts();
  const auto rows = QueueBulk(1, 2, &scheduler);
  const MonoTime later = kNow + std::chrono::minutes(1);
  const Applicant own{.load = {.tokens = 4}, .caller = 1, .deadline = later, .prompt_tokens = 4};
  const Admission decision = admission.Reserve(own, scheduler, 0, kNow);
  ASSERT_TRUE(decision.deferred);
  admission.Defer(1, own, scheduler, decision, kNow);
  EXPECT_FALSE(admission.HasRoomForNext(scheduler, 0, kNow));
  Applicant other = own;
  other.caller = 2;
  const Admission gives = admission.Reserve(other, scheduler, 0, kNow);
  ASSERT_TRUE(gives.deferred && gives.gives_place) << "the earlier request has the place";
  std::vector<WaitingSequence*> batch;
  ASSERT_TRUE(scheduler.Decide({.now = kNow}, &batch).launch);
  EXPECT_FALSE(admission.HasRoomForNext(scheduler, 0, kNow)) << "its caller's rows are ahead";
  admission.Leave(1);
  admission.Defer(2, other, scheduler, gives, kNow);
  EXPECT_TRUE(admission.HasRoomForNext(scheduler, 0, kNow));
}

// Ten times the capacity for two seconds of virtual time, with no or distant deadlines. Admitted
// requests begin within the limit, and when the overload ends, the queue is at most the limit long.
TEST(AdmissionControl, AfterAnOverloadTheWaitIsWithinTheLimit) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    constexpr milliseconds kBound(50), kLongest(20);
    AdmissionControl admission({.queue = {.max_wait_us = 50'000, .priority_share = 1}});
    Scheduler scheduler = SchedulerWithCosts();
    std::deque<WaitingSequence> sequences;
    std::vector<int64_t> deferred;  // the prompt tokens of each request in the backlog, by id
    size_t begun = 0;
    MonoTime device_free = kNow, longest = kNow;
    for (MonoTime now = kNow; now < kNow + std::chrono::seconds(2); now += milliseconds(1)) {
      const size_t tokens = 1 + random() % kLongest.count();
      const MonoTime deadline =
          random() % 2 == 0
              ? MonoTime::max()
              : now + kBound + milliseconds(static_cast<int64_t>(1 + random() % 60'000));
      const Applicant applicant{.load = {.tokens = 1, .priority = 1},
                                .deadline = deadline,
                                .prompt_tokens = static_cast<int64_t>(tokens)};
      const Admission decision = admission.Reserve(applicant, scheduler, 0, now);
      const auto enqueue = [&](int64_t prompt_tokens) {
        WaitingSequence& arrived = sequences.emplace_back();
        arrived.ticket = sequences.size();
        arrived.tokens = static_cast<int32_t>(prompt_tokens);
        arrived.queued = now;
        arrived.priority = 1;
        scheduler.Arrive(&arrived);
      };
      const auto take_next = [&] {
        const uint64_t id = admission.TakeNext(scheduler, 0, now).id;
        enqueue(deferred[id]);
      };
      if (decision.gives_place) take_next();
      if (decision.deferred) {
        deferred.push_back(applicant.prompt_tokens);
        admission.Defer(deferred.size() - 1, applicant, scheduler, decision, now);
      } else if (decision.refusal.ok()) {
        enqueue(applicant.prompt_tokens);
      }
      while (admission.HasRoomForNext(scheduler, 0, now)) take_next();
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
  AdmissionControl admission({.queue = {.max_wait_us = 50'000, .priority_share = 1}});
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
  const auto refused = [&](int64_t running) {
    return !Reserve(&admission, RequestWith({4}), {.tokens = 5}, scheduler, running, kNow).ok();
  };
  EXPECT_FALSE(refused(3));
  EXPECT_TRUE(refused(4));
}

TEST(AdmissionControl, TheWaitIncludesCandidatesToScore) {
  AdmissionControl admission({.queue = {.max_wait_us = 50'000}});
  const Scheduler scheduler = SchedulerWithCosts();
  const RequestLoad scoring{.tokens = 5, .candidates = 1000, .priority = 1};
  EXPECT_TRUE(Reserve(&admission, RequestWith({4}), scoring, scheduler, 0, kNow).ok());
  EXPECT_EQ(admission.Wait(0, scheduler), nanoseconds(0)) << "their cost is not known";
  admission.Learn(AdmissionControl::ScoredCandidates{.count = 100, .duration = milliseconds(6)});
  EXPECT_EQ(admission.Wait(0, scheduler), milliseconds(60));
  EXPECT_FALSE(
      Reserve(&admission, RequestWith({4}), {.tokens = 5, .priority = 1}, scheduler, 0, kNow).ok());
  admission.Return(scoring);
  EXPECT_EQ(admission.Wait(0, scheduler), nanoseconds(0));
}

// Candidates are scored in the queue's order, so they delay neither more urgent requests nor, for
// long, other callers.
TEST(AdmissionControl, CandidatesOfOthersDelayOnlyRequestsAfterThem) {
  AdmissionControl admission({.queue = {.max_wait_us = 50'000}});
  const Scheduler scheduler = SchedulerWithCosts();
  admission.Learn(AdmissionControl::ScoredCandidates{.count = 100, .duration = milliseconds(6)});
  const auto admits = [&](int priority, const char* caller) {
    return admission
        .Reserve({.load = {.tokens = 5, .priority = priority, .caller = caller}}, scheduler, 0,
                 kNow)
        .refusal.ok();
  };
  const RequestLoad scoring{.tokens = 5, .candidates = 1000, .priority = 3, .caller = "scorer"};
  ASSERT_TRUE(admission.Reserve({.load = scoring}, scheduler, 0, kNow).refusal.ok());
  EXPECT_FALSE(admits(3, "scorer")) << "60 of 40 ms";
  EXPECT_TRUE(admits(3, "other")) << "it takes its turn";
  EXPECT_FALSE(admits(3, "")) << "callers are not identified";
  EXPECT_TRUE(admits(2, "")) << "it is more urgent";
}

// A queue of 60 ms, which is longer than the requests of these tests may wait.
struct LongQueue {
  LongQueue() {
    sequence.tokens = 60;
    sequence.queued = kNow;
    sequence.priority = 1;
    sequence.caller = 7;
    scheduler.Arrive(&sequence);
  }

  // Reserves an applicant's load and defers it. Returns the refusal.
  absl::Status Defer(uint64_t id, const Applicant& applicant, AdmissionControl* admission) {
    const Admission decision = admission->Reserve(applicant, scheduler, 0, kNow);
    if (!decision.refusal.ok()) return decision.refusal;
    EXPECT_TRUE(decision.deferred);
    admission->Defer(id, applicant, scheduler, decision, kNow);
    return absl::OkStatus();
  }

  Scheduler scheduler = SchedulerWithCosts();
  WaitingSequence sequence;
};

// The candidates of each request take 60 ms, longer than the wait that its level allows.
TEST(AdmissionControl, CandidatesOfDeferredRequestsAreAheadOfNoOther) {
  LongQueue queue;
  AdmissionControl admission({.queue = {.max_wait_us = 50'000}});
  admission.Learn(AdmissionControl::ScoredCandidates{.count = 100, .duration = milliseconds(6)});
  const Applicant applicant{.load = {.tokens = 5, .candidates = 1000, .caller = "scorer"},
                            .caller = 1,
                            .deadline = kNow + std::chrono::minutes(1),
                            .prompt_tokens = 4};
  constexpr uint64_t kRequests = 20;
  for (uint64_t id = 0; id < kRequests; ++id) {
    ASSERT_TRUE(queue.Defer(id, applicant, &admission).ok()) << id;
  }
  queue.scheduler.Remove(&queue.sequence);
  EXPECT_EQ(admission.Wait(0, queue.scheduler), nanoseconds(0));
  for (uint64_t id = 0; id < kRequests; ++id) {
    ASSERT_TRUE(admission.HasRoomForNext(queue.scheduler, 0, kNow)) << "the device is idle";
    // Its own candidates are in the forecast of its end, once.
    const MonoTime latest = applicant.deadline - milliseconds(61);
    EXPECT_TRUE(admission.TakeNext(queue.scheduler, 0, latest).reachable);
    EXPECT_EQ(admission.Wait(0, queue.scheduler), milliseconds(60));
    EXPECT_FALSE(admission.HasRoomForNext(queue.scheduler, 0, kNow));
    admission.Return(applicant.load);
  }
  EXPECT_FALSE(admission.HasRoomForNext(queue.scheduler, 0, kNow)) << "the backlog is empty";
  EXPECT_EQ(admission.Wait(0, queue.scheduler), nanoseconds(0));
}

// The backlog is emptied one by one, and scoring takes 60 ms for each request.
TEST(AdmissionControl, TheWaitInTheBacklogIncludesCandidates) {
  LongQueue queue;
  AdmissionControl admission({.queue = {.max_wait_us = 50'000}});
  admission.Learn(AdmissionControl::ScoredCandidates{.count = 100, .duration = milliseconds(6)});
  const Applicant applicant{.load = {.tokens = 5, .candidates = 1000},
                            .deadline = kNow + std::chrono::seconds(3),
                            .prompt_tokens = 4};
  uint64_t deferred = 0;
  while (deferred < 1000 && queue.Defer(deferred, applicant, &admission).ok()) ++deferred;
  EXPECT_NEAR(static_cast<double>(deferred), 30, 3) << "two seconds at 64 ms each";
}

// Requests of one caller are refused for their own size, which another request may not have.
TEST(AdmissionControl, ARefusalForTheSizeOfAPatientRequestIsNotKept) {
  LongQueue queue;
  AdmissionControl admission(
      {.queue = {.max_tokens = 20, .max_wait_us = 50'000, .priority_share = 1}});
  admission.Learn(AdmissionControl::ScoredCandidates{.count = 100, .duration = milliseconds(6)});
  const auto applicant = [](int64_t tokens, int64_t candidates = 0) {
    return Applicant{.load = {.tokens = tokens, .candidates = candidates},
                     .deadline = kNow + std::chrono::seconds(2),
                     .prompt_tokens = 1};
  };
  const auto stands = [&] {
    return !admission.Standing(0, kDefaultPriority, kNow + std::chrono::seconds(2), kNow).ok();
  };
  ASSERT_TRUE(queue.Defer(1, applicant(6), &admission).ok());
  EXPECT_EQ(ReasonOf(queue.Defer(2, applicant(5), &admission)), Reason::kQueueFull);
  EXPECT_FALSE(stands()) << "a request of four tokens fits";
  EXPECT_EQ(ReasonOf(queue.Defer(2, applicant(1, 25'000), &admission)),
            Reason::kDeadlineUnreachable);
  EXPECT_FALSE(stands()) << "a request with fewer candidates ends in time";
  EXPECT_TRUE(queue.Defer(2, applicant(4), &admission).ok());
}

// Each request takes two seconds of the device.
TEST(AdmissionControl, ARefusalForTheWaitInTheBacklogHoldsForLaterDeadlines) {
  LongQueue queue;
  AdmissionControl admission({.queue = {.max_wait_us = 50'000}});
  const auto applicant = [](milliseconds patience) {
    return Applicant{.load = {.tokens = 5}, .deadline = kNow + patience, .prompt_tokens = 2000};
  };
  ASSERT_TRUE(queue.Defer(1, applicant(std::chrono::seconds(10)), &admission).ok());
  ASSERT_TRUE(queue.Defer(2, applicant(std::chrono::seconds(2)), &admission).ok())
      << "it is due before the other";
  const auto standing = [&](milliseconds patience, MonoTime now) {
    return admission.Standing(0, kDefaultPriority, now + patience, now);
  };
  const milliseconds patience(2001);
  const absl::Status late = queue.Defer(3, applicant(patience), &admission);
  EXPECT_EQ(ReasonOf(late), Reason::kDeadlineUnreachable);
  EXPECT_EQ(standing(patience, kNow), late);
  EXPECT_EQ(standing(patience - milliseconds(1), kNow + milliseconds(1)), late);
  EXPECT_TRUE(standing(patience - milliseconds(1), kNow).ok()) << "fewer may be ahead";
  EXPECT_TRUE(standing(patience + milliseconds(1), kNow).ok()) << "it may wait for longer";
  admission.TakeNext(queue.scheduler, 0, kNow);
  EXPECT_TRUE(standing(patience, kNow).ok()) << "the backlog is shorter";
}

TEST(AdmissionControl, ReturningALoadMakesRoom) {
  AdmissionControl admission({.queue = {.max_requests = 1}});
  const Scheduler scheduler = SchedulerWithCosts();
  const RequestLoad load{.tokens = 2, .bytes = 8, .priority = 1};
  EXPECT_TRUE(Reserve(&admission, RequestWith({1}), load, scheduler, 0, kNow).ok());
  EXPECT_FALSE(Reserve(&admission, RequestWith({1}), load, scheduler, 0, kNow).ok());
  admission.Return(load);
  EXPECT_EQ(admission.bytes(), 0);
  EXPECT_TRUE(Reserve(&admission, RequestWith({1}), load, scheduler, 0, kNow).ok());
}

TEST(AdmissionControl, LearnsTheGeneratedShareOfMaxTokens) {
  AdmissionControl admission({});
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
    return !Reserve(&admission, RequestWith({4}, kNow + allowed, /*max_tokens=*/10),
                    {.tokens = 41, .bytes = 8, .priority = 1}, scheduler, 3, kNow)
                .ok();
  };
  AdmissionControl admission({});
  const AdmissionControl fresh = admission;
  milliseconds bound(1);
  while (refused(fresh, bound)) bound += milliseconds(1);
  for (int i = 0; i < 50; ++i) {
    admission.Learn(AdmissionControl::Outcome{.queued = kNow,
                                              .ended = kNow + 2 * bound,
                                              .deadline = MonoTime::max(),
                                              .admission = {.needed = bound},
                                              .status = absl::OkStatus()});
  }
  EXPECT_FALSE(refused(admission, bound));
  for (int i = 0; i < 50; ++i) {
    admission.Learn(AdmissionControl::Outcome{.queued = kNow,
                                              .ended = kNow + 2 * bound,
                                              .deadline = kNow + bound,
                                              .admission = {.needed = bound},
                                              .status = absl::DeadlineExceededError("late")});
  }
  EXPECT_TRUE(refused(admission, bound));
}

// The queue has 45 of 50 ms of work for level 1, and level 2 may wait for 40 ms.
struct PatienceRow {
  const char* name;
  int priority = 2;
  MonoTime deadline = kNow + std::chrono::minutes(1);
  int64_t max_wait_us = 50'000;
  int64_t max_tokens = 1 << 20;  // of the queue
  int64_t tokens = 5;
  MonoTime next_deadline = MonoTime::max();  // of a request in the backlog; max(): none
  std::optional<Reason> reason = std::nullopt;
  bool deferred = false;
  bool gives_place = false;
};
class PatienceTable : public TableTest<PatienceRow> {};

TEST_P(PatienceTable, DecidesWhereARequestWaits) {
  AdmissionControl admission({.queue = {.max_tokens = row().max_tokens,
                                        .max_wait_us = row().max_wait_us,
                                        .priority_share = 0.8}});
  Scheduler scheduler = SchedulerWithCosts();
  if (row().next_deadline != MonoTime::max()) {
    Applicant next{.load = {.tokens = 1, .priority = row().priority},
                   .deadline = row().next_deadline,
                   .prompt_tokens = 1};
    admission.Defer(7, next, scheduler, {.deferred = true}, kNow);
  }
  WaitingSequence sequence;
  sequence.tokens = 45;
  sequence.queued = kNow;
  sequence.priority = 1;
  scheduler.Arrive(&sequence);
  const Applicant applicant{.load = {.tokens = row().tokens, .priority = row().priority},
                            .deadline = row().deadline,
                            .prompt_tokens = 4};
  const Admission decision = admission.Reserve(applicant, scheduler, 0, kNow);
  ASSERT_EQ(decision.refusal.ok(), !row().reason.has_value()) << decision.refusal;
  if (row().reason.has_value()) {
    EXPECT_EQ(ReasonOf(decision.refusal), *row().reason);
  }
  EXPECT_EQ(decision.deferred, row().deferred);
  EXPECT_EQ(decision.gives_place, row().gives_place);
}

const PatienceRow kPatienceRows[] = {
    {.name = "APatientRequestIsDeferredIfTheQueueIsTooLong", .deferred = true},
    {.name = "ARequestWithoutADeadlineIsRefused",
     .deadline = MonoTime::max(),
     .reason = Reason::kQueueFull},
    {.name = "ADeadlineBeforeMaxWaitIsQueued", .deadline = kNow + milliseconds(40)},
    {.name = "ADeadlineSoonAfterMaxWaitIsRefused",
     .deadline = kNow + milliseconds(55),
     .reason = Reason::kDeadlineUnreachable},
    {.name = "AQueueWithRoomTakesAPatientRequest", .priority = 1},
    {.name = "AnEarlierRequestOfTheBacklogGetsTheRoom",
     .priority = 1,
     .next_deadline = kNow + std::chrono::seconds(30),
     .deferred = true,
     .gives_place = true},
    {.name = "ALaterRequestOfTheBacklogWaits",
     .priority = 1,
     .next_deadline = kNow + std::chrono::minutes(2)},
    {.name = "WithoutMaxWaitEveryRequestIsQueued", .max_wait_us = 0},
    {.name = "ALoadAboveThePartOfTheBacklogIsRefused",
     .max_tokens = 10,
     .tokens = 6,
     .reason = Reason::kQueueFull},
};
SLUICE_TABLE(PatienceTable, kPatienceRows);

TEST(AdmissionControl, TheBacklogUsesHalfOfEachLimit) {
  AdmissionControl admission({.queue = {.max_requests = 8, .priority_share = 1}});
  Scheduler scheduler = SchedulerWithCosts();
  WaitingSequence sequence;
  sequence.tokens = 2000;
  sequence.queued = kNow;
  scheduler.Arrive(&sequence);
  const auto reserve = [&](MonoTime deadline) {
    return admission.Reserve({.load = {.tokens = 1}, .deadline = deadline, .prompt_tokens = 1},
                             scheduler, 0, kNow);
  };
  const MonoTime later = kNow + std::chrono::minutes(1);
  const Applicant applicant{.load = {.tokens = 1}, .deadline = later, .prompt_tokens = 1};
  for (uint64_t id = 0; id < 6; ++id) {
    const Admission decision = reserve(later);
    EXPECT_TRUE(decision.deferred) << "the first two have left the backlog";
    admission.Defer(id, applicant, scheduler, decision, kNow);
    if (id == 0) {
      EXPECT_EQ(admission.TakeNext(scheduler, 0, kNow).id, 0u);
    }
    if (id == 1) admission.Leave(1);
  }
  const Admission refused = reserve(later);
  EXPECT_EQ(ReasonOf(refused.refusal), Reason::kQueueFull);
  EXPECT_THAT(std::string(refused.refusal.message()),
              HasSubstr("half of engine.queue.max_requests"));
  EXPECT_EQ(admission.Standing(0, kDefaultPriority, later, kNow), refused.refusal)
      << "it applies to calls that may wait for as long";
  EXPECT_TRUE(admission.Standing(0, kDefaultPriority, later + milliseconds(1), kNow).ok());
  EXPECT_TRUE(reserve(kNow + milliseconds(500)).refusal.ok()) << "the queue has room for others";
}

}  // namespace
}  // namespace sluice
