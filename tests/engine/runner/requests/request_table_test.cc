// Compares a RequestTable under random operations with a simple model of the state of each request.
#include "engine/runner/requests/request_table.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "base/reason.h"
#include "gtest/gtest.h"
#include "tests/engine/runner/runner_parts.h"
#include "tests/support/table.h"

namespace sluice {
namespace {

// The expected state of one request.
struct Expected {
  absl::StatusCode code = absl::StatusCode::kOk;
  int32_t rows = 0;
  bool ended = false;
};

class RandomOperations {
 public:
  // If `defers`, a request that finds a queue of requests waits in the backlog.
  RandomOperations(uint64_t seed, bool defers)
      : random_(seed), defers_(defers), parts_(OptionsOf(defers)) {
    if (defers) parts_.LearnCosts();
  }

  void Run() {
    for (int i = 0; i < 300 && !::testing::Test::HasFailure(); ++i) {
      switch (Below(5)) {
        case 0:
        case 1:
          if (expected_.size() < 40) Admit();
          break;
        case 2:
          FailOne();
          break;
        default:
          Step();
      }
      Check();
    }
    while (!in_step_.empty() || Decide()) EndStep();
    TakeEnded();
    for (const auto& [id, request] : expected_) EXPECT_TRUE(request.ended) << id;
    EXPECT_EQ(deferred_ > 0, defers_);
    MutexLock lock(&parts_.state.mu);
    EXPECT_TRUE(parts_.state.requests.empty());
    EXPECT_EQ(parts_.state.requests.running_requests(), 0);
    EXPECT_EQ(parts_.state.requests.running_sequences(), 0);
    EXPECT_EQ(parts_.state.requests.remaining_tokens(), 0);
    EXPECT_EQ(parts_.state.admission.bytes(), 0);
    EXPECT_EQ(parts_.state.scheduler.kv().available(), parts_.state.scheduler.kv().pages());
  }

 private:
  static EngineOptions OptionsOf(bool defers) {
    EngineOptions options = SmallOptions();
    if (defers) options.queue.max_wait_us = 1;
    return options;
  }

  uint64_t Below(uint64_t limit) { return random_() % limit; }

  void Admit() {
    std::vector<std::vector<int32_t>> rows(1 + Below(3));
    const bool alike = Below(2) == 0;  // then most rows wait for the first one
    const auto first = static_cast<int32_t>(2 + Below(90));
    for (auto& row : rows) {
      row.assign(1 + Below(12), alike ? first : static_cast<int32_t>(2 + Below(90)));
    }
    const auto count = static_cast<int32_t>(rows.size());
    const MonoTime deadline =
        defers_ ? parts_.clock.Now() + std::chrono::minutes(1) : MonoTime::max();
    const RequestId id = parts_.Admit(rows, static_cast<int32_t>(Below(4)), deadline);
    MutexLock lock(&parts_.state.mu);
    if (parts_.state.requests.Find(id)->admission.deferred) ++deferred_;
    EXPECT_TRUE(expected_.emplace(id, Expected{.rows = count}).second) << "id used twice";
  }

  void FailOne() {
    if (expected_.empty()) return;
    auto it = expected_.begin();
    std::advance(it, Below(expected_.size()));
    MutexLock lock(&parts_.state.mu);
    ActiveRequest* const request = parts_.state.requests.Find(it->first);
    ASSERT_EQ(request == nullptr, it->second.ended || finished_.contains(it->first));
    if (request == nullptr) return;
    const bool cancel = Below(2) == 0;
    parts_.state.requests.Fail(request,
                               cancel ? absl::CancelledError("") : absl::InternalError(""));
    if (it->second.code == absl::StatusCode::kOk) {
      it->second.code = cancel ? absl::StatusCode::kCancelled : absl::StatusCode::kInternal;
    }
    if (parts_.state.requests.Find(it->first) == nullptr) finished_.insert(it->first);
  }

  bool Decide() {
    InFlightStep* const step = parts_.Decide();
    if (step == nullptr) return false;
    in_step_ = step->rows;
    return true;
  }

  void Step() {
    if (!in_step_.empty()) {
      EndStep();
    } else {
      Decide();
    }
  }

  // Ends the step of the rows like the pipeline: some continue, others finish or fail.
  void EndStep() {
    MutexLock lock(&parts_.state.mu);
    RequestTable& requests = parts_.state.requests;
    requests.EndStep();
    for (RequestRow* row : in_step_) {
      const RequestId id = row->owner->id;
      bool more = row->step_end() < row->length();
      if (!more && row->generation.limit > 0) more = row->Keep(static_cast<int32_t>(2 + Below(90)));
      if (more && row->owner->status.ok()) {
        requests.Requeue(row);
      } else {
        requests.Finish(row, /*computed=*/row->owner->status.ok());
      }
      if (requests.Find(id) == nullptr) finished_.insert(id);
    }
    in_step_.clear();
  }

  void TakeEnded() {
    for (const auto& request : parts_.TakeEnded()) {
      Expected& expected = expected_.at(request->id);
      EXPECT_FALSE(expected.ended) << "taken twice: " << request->id;
      expected.ended = true;
      EXPECT_EQ(request->status.code(), expected.code);
      EXPECT_EQ(request->parts_left, 0);
      for (const RequestRow& row : request->rows) {
        EXPECT_EQ(row.state(), SequenceState::kDone);
        EXPECT_TRUE(row.kv.ids.empty());
      }
      EXPECT_TRUE(finished_.erase(request->id) == 1);
    }
  }

  void Check() {
    if (Below(3) == 0) TakeEnded();
    int64_t live = 0;
    for (const auto& [id, request] : expected_) {
      if (!request.ended && !finished_.contains(id)) ++live;
    }
    MutexLock lock(&parts_.state.mu);
    const RequestTable& requests = parts_.state.requests;
    EXPECT_EQ(requests.running_requests() + requests.waiting_requests(), live);
    EXPECT_EQ(requests.has_ended(), !finished_.empty());
    EXPECT_GE(requests.remaining_tokens(), 0);
    EXPECT_EQ(requests.running_sequences(),
              static_cast<int64_t>(in_step_.size() + parts_.state.queue().running()));
  }

  std::mt19937_64 random_;
  const bool defers_;
  int64_t deferred_ = 0;  // requests that waited in the backlog
  RunnerParts parts_;
  std::map<RequestId, Expected> expected_;
  std::set<RequestId> finished_;  // requests that ended and were not taken yet
  std::vector<RequestRow*> in_step_;
};

TEST(RequestTableProperty, EveryRequestIsTakenOnceWithItsFirstError) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    RandomOperations(seed, /*defers=*/seed % 2 == 0).Run();
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(RequestTable, TakeAllFailsTheRequestsThatHaveNotEnded) {
  RunnerParts parts;
  const RequestId waiting = parts.Admit({{1, 2}});
  parts.Admit({{3, 4, 5}}, 3);
  ASSERT_NE(parts.Decide(), nullptr);
  parts.Admit({{6}});
  MutexLock lock(&parts.state.mu);
  const RequestTable::Requests taken = parts.state.requests.TakeAll(absl::UnavailableError("gone"));
  ASSERT_EQ(taken.size(), 3u);
  for (const auto& request : taken) {
    EXPECT_EQ(request->status.code(), absl::StatusCode::kUnavailable);
  }
  EXPECT_TRUE(parts.state.requests.empty());
  EXPECT_EQ(parts.state.requests.Find(waiting), nullptr);
  EXPECT_EQ(parts.state.admission.bytes(), 0);
}

// The rows have a prefix of two pages. Once the adapter is known, they may share pages or not.
TEST(RequestTable, RowsAreHeldOnlyIfTheyMaySharePagesWithTheirAdapter) {
  for (const bool reuse : {false, true}) {
    SCOPED_TRACE(reuse);
    RunnerParts parts;
    const std::vector<std::vector<int32_t>> rows(3, std::vector<int32_t>(9, 7));
    const RequestId id = parts.Admit(RequestOf(parts.model, rows, 1), /*awaits_adapter=*/true);
    MutexLock lock(&parts.state.mu);
    ActiveRequest* const request = parts.state.requests.Find(id);
    request->SeparatePrefixes(5, reuse);
    parts.state.requests.AdapterReady(request);
    EXPECT_EQ(request->rows[0].state(), SequenceState::kQueued);
    for (const int row : {1, 2}) {
      EXPECT_EQ(request->rows[row].state(), reuse ? SequenceState::kHeld : SequenceState::kQueued);
    }
  }
}

struct SharedRow {
  const char* name;
  int rows = 2;
  int common = 0, tokens = 0;  // at the beginning of each row, and in all of it
  int32_t shared = 0;
};
class SharedTokensTable : public TableTest<SharedRow> {};

TEST_P(SharedTokensTable, AreComputedOnceIfThatSavesEnough) {
  std::vector<std::vector<int32_t>> rows(row().rows, std::vector<int32_t>(row().tokens, 7));
  for (int32_t i = 0; i < row().rows; ++i) {
    std::fill(rows[i].begin() + row().common, rows[i].end(), 10 + i);
  }
  ModelConfig config = FakeConfig();
  config.max_positions = 1024;
  const ActiveRequest request(RequestOf(FakeModel(config), rows, 1),
                              std::make_shared<RecordingSink>(), MonoTime(), MonoTime());
  EXPECT_EQ(request.SharedTokens(/*page_tokens=*/16), row().shared);
}

const SharedRow kSharedRows[] = {
    {.name = "HalfOfTheTokens", .rows = 3, .common = 24, .tokens = 32, .shared = 24},
    {.name = "FewerThanHalf", .rows = 3, .common = 23, .tokens = 32},
    {.name = "TokensOfAStepAreEnough", .rows = 8, .common = 100, .tokens = 1000, .shared = 100},
    {.name = "ExactlyTheTokensOfAStep", .rows = 5, .common = 64, .tokens = 1000, .shared = 64},
    {.name = "OneTokenPerRowFewer", .rows = 5, .common = 63, .tokens = 1000},
    {.name = "LessThanAPage", .rows = 100, .common = 15, .tokens = 16},
    {.name = "AtLeastOneTokenOfARowIsComputed",
     .rows = 4,
     .common = 32,
     .tokens = 32,
     .shared = 31},
    {.name = "NoneOfOneRow", .rows = 1, .common = 40, .tokens = 40},
};
SLUICE_TABLE(SharedTokensTable, kSharedRows);

struct Deferring {
  Deferring() {
    parts.LearnCosts();
    first = parts.Admit({std::vector<int32_t>(12, 1)});
    second = parts.Admit({std::vector<int32_t>(12, 2)});  // 24 ms of work, the limit is 18 ms
    deferred = parts.Admit({{3, 4}, {5, 6}}, 1, parts.clock.Now() + std::chrono::seconds(10));
  }
  static EngineOptions Options() {
    EngineOptions options = SmallOptions();
    options.queue.max_wait_us = 20'000;
    return options;
  }

  RunnerParts parts{Options()};
  RequestId first = 0, second = 0, deferred = 0;
};

TEST(RequestTable, ADeferredRequestEntersTheQueueWhenThereIsRoom) {
  Deferring d;
  {
    MutexLock lock(&d.parts.state.mu);
    const ActiveRequest* const request = d.parts.state.requests.Find(d.deferred);
    EXPECT_TRUE(request->admission.deferred);
    EXPECT_EQ(request->rows[0].state(), SequenceState::kHeld);
    EXPECT_EQ(d.parts.state.queue().size(), 2);
    EXPECT_EQ(d.parts.state.requests.waiting_requests(), 3);
    d.parts.state.requests.FillQueue(d.parts.clock.Now());
    EXPECT_EQ(request->rows[0].state(), SequenceState::kHeld) << "24 of 18 ms";
    d.parts.state.requests.Fail(d.parts.state.requests.Find(d.first), absl::CancelledError(""));
    d.parts.state.requests.FillQueue(d.parts.clock.Now());
    EXPECT_EQ(request->rows[0].state(), SequenceState::kHeld) << "the queue has enough for a step";
    d.parts.state.requests.Fail(d.parts.state.requests.Find(d.second), absl::CancelledError(""));
    d.parts.clock.Advance(std::chrono::seconds(1));
    d.parts.state.requests.FillQueue(d.parts.clock.Now());
    EXPECT_EQ(request->rows[0].state(), SequenceState::kQueued) << "the queue is empty";
    EXPECT_EQ(request->rows[0].queued, d.parts.clock.Now());
    EXPECT_TRUE(d.parts.state.admission.backlog().empty());
    EXPECT_EQ(d.parts.state.queue().size(), 2);
  }
}

// Its prompt waits for 24 ms of work, and its candidates take 60 ms.
TEST(RequestTable, ADeferredRequestWithCandidatesEntersTheQueueInTime) {
  Deferring d;
  {
    MutexLock lock(&d.parts.state.mu);
    d.parts.state.requests.Fail(d.parts.state.requests.Find(d.deferred), absl::CancelledError(""));
    d.parts.state.admission.Learn(AdmissionControl::ScoredCandidates{
        .count = 1000, .duration = std::chrono::milliseconds(60)});
  }
  Request request = RequestOf(d.parts.model, {{3, 4}}, 0);
  request.deadline = d.parts.clock.Now() + std::chrono::seconds(10);
  request.outputs = kOutputCandidates;
  request.candidates = {.values = std::vector<int32_t>(1000, 5), .begin = {0, 1000}};
  const RequestId id = d.parts.Admit(std::move(request));
  MutexLock lock(&d.parts.state.mu);
  d.parts.clock.Advance(std::chrono::seconds(10) - std::chrono::milliseconds(110));
  d.parts.state.requests.QueueNext(d.parts.clock.Now());
  const ActiveRequest* const queued = d.parts.state.requests.Find(id);
  ASSERT_NE(queued, nullptr) << "it was refused";
  EXPECT_EQ(queued->rows[0].state(), SequenceState::kQueued);
}

TEST(RequestTable, ADeferredRequestExpiresAtItsDeadline) {
  Deferring d;
  MutexLock lock(&d.parts.state.mu);
  RequestTable& requests = d.parts.state.requests;
  EXPECT_EQ(d.parts.state.admission.backlog().EarliestDeadline(),
            d.parts.clock.Now() + std::chrono::seconds(10));
  d.parts.clock.Advance(std::chrono::seconds(10) - nanoseconds(1));
  requests.ExpireWaiting(d.parts.clock.Now());
  EXPECT_NE(requests.Find(d.deferred), nullptr);
  d.parts.clock.Advance(nanoseconds(1));
  requests.ExpireWaiting(d.parts.clock.Now());
  EXPECT_EQ(requests.Find(d.deferred), nullptr);
  RequestTable::Requests taken;
  requests.TakeEnded(&taken);
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0]->status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(d.parts.state.admission.backlog().EarliestDeadline(), MonoTime::max());
}

TEST(RequestTable, ADeferredRequestThatWouldBeLateDoesNotEnterTheQueue) {
  Deferring d;
  MutexLock lock(&d.parts.state.mu);
  d.parts.clock.Advance(std::chrono::seconds(10) - std::chrono::milliseconds(5));
  d.parts.state.requests.QueueNext(d.parts.clock.Now());
  EXPECT_EQ(d.parts.state.queue().size(), 2);
  RequestTable::Requests taken;
  d.parts.state.requests.TakeEnded(&taken);
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(ReasonOf(taken[0]->status), Reason::kDeadlineUnreachable);
}

}  // namespace
}  // namespace sluice
