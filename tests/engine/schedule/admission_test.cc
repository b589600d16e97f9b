#include "engine/schedule/admission.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/schedule/step_shape.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/table.h"

namespace sluice {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

double Milliseconds(nanoseconds duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

RequestLoad Load(int64_t tokens, int64_t bytes = 1, int priority = 1) {
  return {.tokens = tokens, .bytes = bytes, .priority = priority};
}

TEST(AdmissionBudget, ErrorsNameTheReachedLimit) {
  AdmissionBudget budget({.max_requests = 3, .max_tokens = 100, .max_bytes = 1000});
  EXPECT_TRUE(budget.Take(Load(60, 500)).ok());
  const absl::Status tokens = budget.Take(Load(41));
  EXPECT_EQ(tokens.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(tokens.message()),
              HasSubstr("may use 100 tokens (engine.queue.max_tokens)"));
  const absl::Status bytes = budget.Take(Load(1, 501));
  EXPECT_EQ(bytes.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(bytes.message()),
              HasSubstr("may use 1000 bytes (engine.queue.max_bytes)"));
  EXPECT_TRUE(budget.Take(Load(40, 500)).ok());  // the budget is exactly full
  EXPECT_EQ(budget.bytes(), 1000);
  EXPECT_TRUE(budget.Take(Load(0, 0)).ok());
  const absl::Status requests = budget.Take(Load(0, 0));
  EXPECT_EQ(requests.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(requests.message()),
              HasSubstr("may use 3 requests (engine.queue.max_requests)"));
  budget.Return(Load(60, 500));
  EXPECT_TRUE(budget.Take(Load(60, 500)).ok());
}

RequestLoad LoadOfCaller(const std::string& caller, int64_t tokens) {
  return {.tokens = tokens, .bytes = 1, .priority = 1, .caller = caller};
}

TEST(AdmissionBudget, ASingleCallerFillsItsShare) {
  AdmissionBudget budget(
      {.max_requests = 10, .max_tokens = 100, .max_bytes = 1000, .max_caller_share = 0.5});
  EXPECT_TRUE(budget.Take(LoadOfCaller("a", 30)).ok());
  EXPECT_TRUE(budget.Take(LoadOfCaller("a", 20)).ok()) << "exactly the share";
  const absl::Status refused = budget.Take(LoadOfCaller("a", 1));
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(
      std::string(refused.message()),
      HasSubstr("the requests of caller a have reached their share of engine.queue.max_tokens"));
  EXPECT_TRUE(budget.Take(LoadOfCaller("b", 50)).ok());
  budget.Return(LoadOfCaller("a", 30));
  EXPECT_FALSE(budget.Take(LoadOfCaller("a", 11)).ok()) << "it has 20, and 19 would be left";
  EXPECT_TRUE(budget.Take(LoadOfCaller("a", 10)).ok());
  EXPECT_EQ(budget.bytes(), 3);
  for (const auto& [caller, tokens] :
       {std::pair("a", 10), std::pair("a", 20), std::pair("b", 50)}) {
    budget.Return(LoadOfCaller(caller, tokens));
  }
  EXPECT_EQ(budget.bytes(), 0);
  EXPECT_TRUE(budget.Take(LoadOfCaller("a", 90)).ok()) << "one request in an empty queue";
  EXPECT_FALSE(budget.Take(LoadOfCaller("a", 1)).ok());
  EXPECT_TRUE(budget.Take(LoadOfCaller("", 10)).ok()) << "callers are not identified";
}

// Callers that fill their shares leave room for a caller without requests.
TEST(AdmissionBudget, ACallerWithoutRequestsFindsRoom) {
  for (int callers = 1; callers <= 20; ++callers) {
    SCOPED_TRACE(callers);
    AdmissionBudget budget({.max_requests = 1000});
    std::vector<int> taken(callers);
    bool any = true;
    while (any) {
      any = false;
      for (int i = 0; i < callers; ++i) {
        if (!budget.Take(LoadOfCaller("caller" + std::to_string(i), 1)).ok()) continue;
        ++taken[i];
        any = true;
      }
    }
    const auto [least, most] = std::minmax_element(taken.begin(), taken.end());
    EXPECT_LE(*most, *least + 1) << "equal shares";
    EXPECT_GE(*least, 940 / callers);
    EXPECT_TRUE(budget.Take(LoadOfCaller("new", 1)).ok());
  }
}

TEST(AdmissionBudget, ALoadThatNeverFitsIsInvalid) {
  AdmissionBudget budget({.max_requests = 10, .max_tokens = 100, .max_bytes = 1000});
  for (int i = 0; i < 2; ++i) {  // for any queue
    EXPECT_EQ(budget.Take(Load(101)).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(budget.Take(Load(1, 1001)).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(budget.Take(Load(std::numeric_limits<int64_t>::max())).code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(budget.Take(Load(50, 500)).ok());
  }
}

struct PriorityShareRow {
  const char* name;
  QueueOptions options;
  RequestLoad each;
  // The number of fitting loads for each priority, starting with the most urgent.
  int fit_by_priority[kPriorityLevels];
};
class PriorityShareTable : public TableTest<PriorityShareRow> {};

TEST_P(PriorityShareTable, LessUrgentPrioritiesLeaveRoomForUrgentOnes) {
  for (int priority = 1; priority <= kPriorityLevels; ++priority) {
    AdmissionBudget budget(row().options);
    RequestLoad load = row().each;
    load.priority = priority;
    int fit = 0;
    while (budget.Take(load).ok()) ++fit;
    EXPECT_EQ(fit, row().fit_by_priority[priority - 1]) << "priority " << priority;
    load.priority = 1;  // may also take the room that is left for urgent requests
    while (budget.Take(load).ok()) ++fit;
    EXPECT_EQ(fit, row().fit_by_priority[0]);
  }
}

const PriorityShareRow kPriorityShareRows[] = {
    {.name = "RequestsLeaveRoom",
     .options = {.max_requests = 100, .priority_share = 0.9},
     .each = {.tokens = 1},
     .fit_by_priority = {100, 90, 81}},
    {.name = "TokensLeaveRoom",
     .options = {.max_tokens = 1000, .priority_share = 0.5},
     .each = {.tokens = 10},
     .fit_by_priority = {100, 50, 25}},
    {.name = "BytesLeaveRoom",
     .options = {.max_bytes = 1000, .priority_share = 0.1},
     .each = {.bytes = 10},
     .fit_by_priority = {100, 10, 1}},
    {.name = "AShareOfOneReservesNoRoom",
     .options = {.max_requests = 10, .priority_share = 1},
     .each = {.tokens = 1},
     .fit_by_priority = {10, 10, 10}},
    {.name = "ABudgetOfOneRequestAcceptsAnyPriority",
     .options = {.max_requests = 1, .priority_share = 0.01},
     .each = {.tokens = 1},
     .fit_by_priority = {1, 1, 1}},
};
SLUICE_TABLE(PriorityShareTable, kPriorityShareRows);

TEST(AdmissionBudget, AnEmptyQueueAcceptsTheLargestLoadOfAnyPriority) {
  for (int priority = 1; priority <= kPriorityLevels; ++priority) {
    AdmissionBudget budget({.max_tokens = 100, .priority_share = 0.5});
    EXPECT_TRUE(budget.Take(Load(100, 1, priority)).ok());
  }
}

// A scheduler on virtual time whose steps take 1 ms plus 100 us per token.
class VirtualServer {
 public:
  VirtualServer()
      : scheduler_(Options(), std::chrono::minutes(1), MakeLadder(), Costs(), nullptr) {}

  const Scheduler& scheduler() const { return scheduler_; }
  MonoTime now() const { return now_; }

  void Arrive(WaitingSequence* sequence) { scheduler_.Arrive(sequence); }

  // Runs steps until `until`, or until the queue is empty. Adds the sequences that ended in time to
  // `in_time`.
  void RunUntil(MonoTime until, std::vector<const WaitingSequence*>* in_time) {
    while (now_ < until) {
      while (WaitingSequence* expired = scheduler_.queue().Expired(now_)) {
        scheduler_.Remove(expired);
      }
      const BatchDecision decision = scheduler_.Decide({.now = now_}, &batch_);
      if (!decision.launch) break;
      now_ += Cost(decision.size.tokens);
      for (const WaitingSequence* sequence : batch_) {
        if (sequence->deadline > now_) in_time->push_back(sequence);
      }
    }
    // The device is idle until the next arrival, unless its last step ends later.
    if (until != MonoTime::max()) now_ = std::max(now_, until);
  }

 private:
  static microseconds Cost(int32_t tokens) { return microseconds(1000 + 100 * tokens); }
  static BatchOptions Options() { return {.max_batch_sequences = 8}; }
  static std::shared_ptr<const Ladder> MakeLadder() {
    return std::make_shared<const Ladder>(
        std::vector<Bucket>{{.tokens = 16, .sequences = 8}, {.tokens = 64, .sequences = 8}});
  }
  static CostModel Costs() {
    CostModel costs;
    for (int i = 0; i < 200; ++i) {
      for (const int32_t tokens : {8, 16, 32, 64}) {
        const Bucket bucket{.tokens = tokens <= 16 ? 16 : 64, .sequences = 8};
        costs.Observe({.bucket = bucket, .computed_tokens = tokens, .sampled_rows = tokens / 8},
                      std::chrono::duration<double>(Cost(tokens)).count());
      }
    }
    return costs;
  }

  Scheduler scheduler_;
  MonoTime now_ = MonoTime(std::chrono::hours(1));
  std::vector<WaitingSequence*> batch_;
};

constexpr int64_t kEver = -1;

// Ten prompts of 64 tokens and priority 2 wait; each takes 7.4 ms.
struct TimeNeededRow {
  const char* name;
  int64_t due_ms = kEver;  // the deadline of the waiting prompts
  int priority = 2;        // the priority of the request, which is due in 50 ms
  int64_t steps = 0;       // steps of the request after its prompt of 8 tokens
  int64_t running = 0;
  double needed_ms;
  double prompts_per_step = 0;
};
class TimeNeededTable : public TableTest<TimeNeededRow> {};

TEST_P(TimeNeededTable, CountsTheSequencesThatRunFirst) {
  VirtualServer server;
  std::vector<WaitingSequence> waiting(10);
  for (size_t i = 0; i < waiting.size(); ++i) {
    waiting[i] = {.ticket = i + 1, .tokens = 64, .queued = server.now()};
    if (row().due_ms != kEver) waiting[i].deadline = server.now() + milliseconds(row().due_ms);
    server.Arrive(&waiting[i]);
  }
  const Due due{.deadline = server.now() + milliseconds(50),
                .priority = row().priority,
                .tokens = 8,
                .steps = row().steps,
                .prompts_per_step = row().prompts_per_step};
  EXPECT_NEAR(Milliseconds(TimeNeeded(due, row().running, server.scheduler())), row().needed_ms,
              0.1 * row().needed_ms);
}

const TimeNeededRow kTimeNeededRows[] = {
    {.name = "SequencesDueEarlierRunFirst", .due_ms = 40, .needed_ms = 74 + 1.8},
    {.name = "SequencesDueAtTheSameTimeRunFirst", .due_ms = 50, .needed_ms = 74 + 1.8},
    {.name = "MoreUrgentSequencesRunFirst", .due_ms = 40, .priority = 3, .needed_ms = 74 + 1.8},
    {.name = "SequencesDueLaterDoNotCount", .due_ms = 51, .needed_ms = 0},
    {.name = "SequencesWithoutDeadlineDoNotCount", .needed_ms = 0},
    {.name = "LessUrgentSequencesDoNotCount", .due_ms = 40, .priority = 1, .needed_ms = 0},
    {.name = "RunningSequencesDoNotCountForARequestOfOneStep", .running = 7, .needed_ms = 0},
    {.name = "LaterStepsRunTogetherWithRunningSequences",
     .steps = 10,
     .running = 7,
     .needed_ms = 10 * 1.8 + 1.8},
    {.name = "LaterStepsRunTogetherWithEarlierSequences",
     .due_ms = 40,
     .steps = 10,
     .running = 5,
     .needed_ms = 74 + 1.8 + 20 * 1.8},  // sixteen sequences take two batches per step
    {.name = "LaterStepsWithoutOtherSequencesDoNotCount", .steps = 10, .needed_ms = 0},
    // The seven running sequences have ten steps each and make room for prompts: 448 tokens, in
    // seven batches of 64.
    {.name = "PromptsThatReplaceFinishedSequencesCount",
     .steps = 10,
     .running = 7,
     .needed_ms = 10 * 1.8 + 1.8 + 7 * 7.4,
     .prompts_per_step = 6.4},
};
SLUICE_TABLE(TimeNeededTable, kTimeNeededRows);

TEST(TimeNeeded, IsZeroForAnEmptyQueueOrWithoutMeasuredCosts) {
  const VirtualServer empty;
  const MonoTime soon = empty.now() + microseconds(1);
  EXPECT_EQ(TimeNeeded({.deadline = soon, .tokens = 8000, .steps = 100}, 0, empty.scheduler()),
            nanoseconds(0));
  const Scheduler unknown({}, std::chrono::minutes(1), empty.scheduler().ladder(), CostModel(),
                          nullptr);
  EXPECT_EQ(TimeNeeded({.deadline = soon, .tokens = 8, .steps = 100}, 8, unknown), nanoseconds(0));
}

// Teaches the error 2000 times with the same values, except for a random spread of the time taken.
class ForecastErrorTest : public ::testing::Test {
 protected:
  void Learn(double needed_ms, double took_ms, double allowed_ms, double spread = 0) {
    for (int i = 0; i < 2000; ++i) {
      const double by = std::uniform_real_distribution<double>(-spread, spread)(random_);
      error_.Learn(
          {.needed = Of(needed_ms), .allowed = Of(allowed_ms), .took = Of(took_ms * (1 + by))});
    }
  }
  static nanoseconds Of(double ms) { return nanoseconds(std::llround(ms * 1e6)); }

  std::mt19937_64 random_{1};
  ForecastError error_;
};

TEST_F(ForecastErrorTest, FollowsRequestsThatWereNearlyRefused) {
  const double first = error_.factor();
  EXPECT_NEAR(first, 1.2, 1e-9);
  Learn(10, 15, 16);
  EXPECT_NEAR(error_.factor(), 1.5, 0.01);
  Learn(10, 15, 50);  // had 35 ms left, so later requests may have delayed it
  EXPECT_NEAR(error_.factor(), first, 0.01);
  Learn(10, 8, 16);
  EXPECT_NEAR(error_.factor(), 0.8, 0.01);
  Learn(0, 5, 5);  // had an empty server
  EXPECT_NEAR(error_.factor(), first, 0.01);
}

TEST_F(ForecastErrorTest, AddsAMarginForTheSpread) {
  Learn(10, 10, 15, 0.3);
  EXPECT_NEAR(error_.factor(), 1.3, 0.1);  // the mean deviation is half the spread
}

TEST_F(ForecastErrorTest, RisesWithMissesAndRecovers) {
  // The requests are just admitted, and all of them are late.
  for (int i = 0; i < 1000; ++i) {
    const double before = error_.factor();
    error_.Learn({.needed = Of(10 / before), .allowed = Of(10), .took = Of(10), .missed = true});
    EXPECT_TRUE(error_.factor() > before || before > 7.5) << before;
  }
  EXPECT_LE(error_.factor(), 8);
  Learn(0, 3, 10);  // in time, with the server to itself
  EXPECT_NEAR(error_.factor(), 1.2, 0.01);
}

struct Overload {
  int refused = 0;
  bool any_was_late = false;
};

// Requests of equal size and equal time to their deadline arrive faster than they can be served.
// Requests that cannot be served in time are refused, except the `forced`th of them, which is the
// last arrival.
Overload Serve(uint64_t seed, int forced) {
  std::mt19937_64 random(seed);
  VirtualServer server;
  std::vector<WaitingSequence> all(150);
  std::vector<const WaitingSequence*> in_time;
  Overload overload;
  size_t admitted = 0;
  MonoTime at = server.now();
  for (size_t i = 0; i < all.size(); ++i) {
    at += microseconds(random() % 1200);
    server.RunUntil(at, &in_time);
    all[i] = {.ticket = i + 1, .tokens = 8, .queued = at, .deadline = at + milliseconds(30)};
    const nanoseconds needed =
        TimeNeeded({.deadline = all[i].deadline, .tokens = 8}, 0, server.scheduler());
    const bool refuse = at + needed > all[i].deadline;
    overload.refused += refuse ? 1 : 0;
    if (refuse && overload.refused != forced) continue;
    server.Arrive(&all[i]);
    ++admitted;
    if (refuse) break;
  }
  server.RunUntil(MonoTime::max(), &in_time);
  overload.any_was_late = in_time.size() < admitted;
  return overload;
}

TEST(TimeNeeded, ARefusedRequestWouldMissOrCauseAMissedDeadline) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(seed);
    const int refused = Serve(seed, 0).refused;
    EXPECT_GT(refused, 10);
    for (int forced = 1; forced <= refused; ++forced) {
      EXPECT_TRUE(Serve(seed, forced).any_was_late) << "refused without need: " << forced;
    }
  }
}

}  // namespace
}  // namespace sluice
