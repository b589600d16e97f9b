// Compares a RequestTable under random operations with a simple model of the state of each request.
#include "engine/runner/requests/request_table.h"

#include <map>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/engine/runner/runner_parts.h"

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
  explicit RandomOperations(uint64_t seed) : random_(seed) {}

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
    MutexLock lock(&parts_.state.mu);
    EXPECT_TRUE(parts_.state.requests.empty());
    EXPECT_EQ(parts_.state.requests.running_requests(), 0);
    EXPECT_EQ(parts_.state.requests.running_sequences(), 0);
    EXPECT_EQ(parts_.state.requests.remaining_tokens(), 0);
    EXPECT_EQ(parts_.state.admission.bytes(), 0);
    EXPECT_EQ(parts_.state.scheduler.kv().available(), parts_.state.scheduler.kv().pages());
  }

 private:
  uint64_t Below(uint64_t limit) { return random_() % limit; }

  void Admit() {
    std::vector<std::vector<int32_t>> rows(1 + Below(3));
    const bool alike = Below(2) == 0;  // then most rows wait for the first one
    const auto first = static_cast<int32_t>(2 + Below(90));
    for (auto& row : rows) {
      row.assign(1 + Below(12), alike ? first : static_cast<int32_t>(2 + Below(90)));
    }
    const auto count = static_cast<int32_t>(rows.size());
    const RequestId id = parts_.Admit(rows, static_cast<int32_t>(Below(4)));
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
  RunnerParts parts_;
  std::map<RequestId, Expected> expected_;
  std::set<RequestId> finished_;  // requests that ended and were not taken yet
  std::vector<RequestRow*> in_step_;
};

TEST(RequestTableProperty, EveryRequestIsTakenOnceWithItsFirstError) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    RandomOperations(seed).Run();
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

}  // namespace
}  // namespace sluice
