// Tests that candidates are scored in slices between the steps of other requests.
#include "engine/runner/steps/candidate_scorer.h"

#include <atomic>
#include <cmath>
#include <functional>
#include <memory>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "base/reason.h"
#include "gtest/gtest.h"
#include "tests/engine/runner/harness.h"

namespace sluice {
namespace {

constexpr int64_t kSlices = 6;

// Counts the slices scored before the request was done.
class CountingSink : public RecordingSink {
 public:
  explicit CountingSink(const std::atomic<int>* slices) : slices_(*slices) {}
  void OnDone(const absl::Status& status, Reply reply, const RequestTrace& trace) override {
    slices_at_end = slices_.load();
    RecordingSink::OnDone(status, std::move(reply), trace);
  }
  std::atomic<int> slices_at_end = -1;

 private:
  const std::atomic<int>& slices_;
};

class CandidateScorerTest : public ::testing::TestWithParam<int32_t> {
 protected:
  CandidateScorerTest()
      : backend({.steps_ahead = GetParam()}),
        model(*LoadModel("gpt2", 1, SLUICE_SOURCE_DIR "/tests/goldens/gpt2_small")),
        engine(Engine::Create({}, &backend, &clock, &observer)) {
    EXPECT_TRUE(engine->Serve(model).ok());
  }

  // Calls `act` while the first slice is scored, on the scheduling thread.
  void DuringFirstSlice(std::function<void()> act) {
    backend.OnParallelFor([this, act = std::move(act)](int64_t) {
      if (slices++ == 0) act();
    });
  }

  // Returns a request whose candidates take kSlices slices.
  Request MakeScoring() const {
    Request request = RequestOf(model, {{1, 2, 3}}, 0);
    request.outputs = kOutputCandidates;
    const int64_t count = kSlices * (CandidateScorer::kSliceProducts / model->config.hidden_size);
    for (int64_t i = 0; i < count; ++i) {
      request.candidates.values.push_back(static_cast<int32_t>(i * 7 % 65) - 1);
    }
    request.candidates.begin = {0, static_cast<int32_t>(count)};
    return request;
  }

  std::shared_ptr<CountingSink> Submit(Request request, RequestId* id = nullptr) {
    auto sink = std::make_shared<CountingSink>(&slices);
    const absl::StatusOr<RequestId> submitted =
        engine->Submit(std::move(request), sink, clock.Now());
    EXPECT_TRUE(submitted.ok()) << submitted.status();
    if (id != nullptr && submitted.ok()) *id = *submitted;
    return sink;
  }

  FakeClock clock;
  RecordingObserver observer;
  FakeBackend backend;
  const std::shared_ptr<const Model> model;
  std::atomic<int> slices = 0;
  std::unique_ptr<Engine> engine;
};

INSTANTIATE_TEST_SUITE_P(StepsAhead, CandidateScorerTest, ::testing::Values(0, 1),
                         [](const auto& ahead) {
                           return ahead.param == 0 ? "OneStepAtATime" : "OneStepAhead";
                         });

TEST_P(CandidateScorerTest, AnUrgentCallWaitsForOneSlice) {
  std::shared_ptr<CountingSink> urgent;
  DuringFirstSlice([&] {
    Request request = RequestOf(model, {{4, 5}}, 1);
    Mutable(request.spec).priority = 1;
    urgent = Submit(std::move(request));
  });
  const auto scoring = Submit(MakeScoring());
  scoring->AwaitDone();
  ASSERT_NE(urgent, nullptr);
  urgent->AwaitDone();
  EXPECT_TRUE(scoring->status().ok()) << scoring->status();
  EXPECT_EQ(urgent->slices_at_end, 1);
  EXPECT_EQ(scoring->slices_at_end, kSlices);
}

TEST_P(CandidateScorerTest, SlicesGiveTheSameBitsAsSingleCandidates) {
  const Request request = MakeScoring();
  const auto scoring = Submit(request);
  scoring->AwaitDone();
  ASSERT_TRUE(scoring->status().ok()) << scoring->status();
  const std::vector<int32_t> prompt = {1, 2, 3};
  std::vector<double> state(model->config.hidden_size);
  for (size_t i = 0; i < state.size(); ++i) {
    state[i] = fake::State(prompt, static_cast<int64_t>(i));
  }
  const Reply reply = scoring->reply();
  for (size_t i = 0; i < request.candidates.values.size(); i += 997) {
    const int32_t id = request.candidates.values[i];
    const float expected = id < 0 ? -INFINITY : static_cast<float>(model->items->Score(id, state));
    ASSERT_EQ(reply.candidate_scores[i], expected) << i;
  }
}

TEST_P(CandidateScorerTest, ACancelledRequestIsNoLongerScored) {
  RequestId id = 0;
  std::atomic<bool> submitted = false;
  DuringFirstSlice([&] {
    while (!submitted) std::this_thread::yield();
    engine->Cancel(id);
  });
  const auto scoring = Submit(MakeScoring(), &id);
  submitted = true;
  scoring->AwaitDone();
  EXPECT_EQ(scoring->status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(scoring->slices_at_end, 1);
  EXPECT_EQ(observer.done(), 1);
}

TEST_P(CandidateScorerTest, AFailedAllocationEndsItsRequest) {
  DuringFirstSlice([] { throw std::bad_alloc(); });
  const auto scoring = Submit(MakeScoring());
  scoring->AwaitDone();
  EXPECT_EQ(ReasonOf(scoring->status()), Reason::kMemory) << scoring->status();
  const auto after = Submit(MakeScoring());
  after->AwaitDone();
  EXPECT_TRUE(after->status().ok()) << after->status();
}

TEST_P(CandidateScorerTest, ADeadlineEndsTheScores) {
  DuringFirstSlice([&] { clock.Advance(std::chrono::seconds(2)); });
  Request request = MakeScoring();
  request.deadline = clock.Now() + std::chrono::seconds(1);
  const auto scoring = Submit(std::move(request));
  scoring->AwaitDone();
  EXPECT_EQ(scoring->status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(scoring->slices_at_end, 1);
}

TEST_P(CandidateScorerTest, ARequestGeneratesWhileItsCandidatesAreScored) {
  Request request = MakeScoring();
  Mutable(request.spec).lengths = {2, 1};
  const int64_t count = std::ssize(request.candidates.values);
  request.candidates.begin.push_back(static_cast<int32_t>(count + 1));
  request.candidates.values.push_back(3);
  Mutable(request.spec).max_tokens = 2;  // its rows continue while candidates are scored
  request.outputs |= kOutputTokens;
  const auto scoring = Submit(std::move(request));
  const auto other = Submit(RequestOf(model, {{9}}, 3));
  scoring->AwaitDone();
  other->AwaitDone();
  EXPECT_TRUE(scoring->status().ok()) << scoring->status();
  EXPECT_EQ(scoring->row_tokens(1).size(), 2u);
  EXPECT_EQ(scoring->done_calls(), 1);
  EXPECT_TRUE(other->status().ok());
}

}  // namespace
}  // namespace sluice
