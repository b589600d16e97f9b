#include "engine/journal/decision_history.h"

#include "engine/option_specs.h"
#include "gtest/gtest.h"
#include "tests/engine/runner/harness.h"
#include "tests/support/allocation_counter.h"
#include "tests/support/gate.h"
#include "tests/support/request_spec.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;

TEST(RecentWaits, KeepsTheLatestWaitsInOrder) {
  RecentWaits waits;
  EXPECT_TRUE(waits.Since(MonoTime()).empty());
  for (int i = 1; i <= 68; ++i) waits.Add({.at = MonoTime(milliseconds(i))});
  const std::vector<ExplainedWait> all = waits.Since(MonoTime());
  ASSERT_EQ(all.size(), RecentWaits::kWaits);
  EXPECT_EQ(all.front().at, MonoTime(milliseconds(5)));
  EXPECT_EQ(all.back().at, MonoTime(milliseconds(68)));
  EXPECT_EQ(waits.Since(MonoTime(milliseconds(67))).size(), 2u);
  EXPECT_TRUE(waits.Since(MonoTime(milliseconds(69))).empty());
}

TEST(RequestHistory, MergesEqualStepsUnlessTheRequestWaitedBetweenThem) {
  RecentWaits waits;
  RequestHistory history;
  const auto co_batched = std::make_shared<const CoBatchedRequests>();
  const auto add = [&](int64_t number, int64_t took, auto with) {
    history.AddWaits(waits, MonoTime(milliseconds(10)));
    history.Add({.step = number,
                 .replay = milliseconds(took),
                 .last_step = number,
                 .longest = milliseconds(took),
                 .co_batched = with});
  };
  waits.Add({.at = MonoTime(milliseconds(9))});  // before the request arrived
  add(3, 5, co_batched);
  add(4, 2, co_batched);
  add(7, 9, co_batched);
  ASSERT_EQ(history.steps.size(), 1u);
  EXPECT_EQ(history.steps[0].step, 3);
  EXPECT_EQ(history.steps[0].last_step, 7);
  EXPECT_EQ(history.steps[0].count, 3);
  EXPECT_EQ(history.steps[0].replay, milliseconds(2));
  EXPECT_EQ(history.steps[0].longest, milliseconds(9));
  waits.Add({.at = MonoTime(milliseconds(30))});
  add(8, 1, co_batched);
  add(9, 1, std::make_shared<const CoBatchedRequests>());
  ASSERT_EQ(history.steps.size(), 3u);
  ASSERT_EQ(history.waits.size(), 1u);
  EXPECT_EQ(history.waits[0].at, MonoTime(milliseconds(30)));
}

// Each step differs from the previous one in one field; only the last two are equal.
TEST(RequestHistory, KeepsStepsThatDifferSeparate) {
  const auto co_batched = std::make_shared<const CoBatchedRequests>();
  ExplainedStep step{.co_batched = co_batched, .own_tokens = 1};
  RequestHistory history;
  size_t kept = 0;
  const auto add = [&](auto change) {
    change();
    history.Add(step);
    EXPECT_EQ(history.steps.size(), ++kept);
  };
  add([] {});
  add([&] { step.own_tokens = 2; });
  add([&] { step.batch.tokens = 7; });
  add([&] { step.bucket.tokens = 8; });
  add([&] { step.trigger = Trigger::kDeadline; });
  add([&] { step.lookup = Lookup::kMissEvicted; });
  add([&] { step.co_batched = std::make_shared<const CoBatchedRequests>(); });
  step.last_step = 9;
  history.Add(step);
  EXPECT_EQ(history.steps.size(), kept);
  EXPECT_EQ(history.steps.back().last_step, 9);
}

TEST(RequestHistory, KeepsTheFirstWaits) {
  RecentWaits waits;
  RequestHistory history;
  for (int i = 1; i <= 70; ++i) {
    waits.Add({.at = MonoTime(milliseconds(i))});
    history.AddWaits(waits, MonoTime());
  }
  ASSERT_EQ(history.waits.size(), RequestHistory::kWaits);
  EXPECT_EQ(history.waits.front().at, MonoTime(milliseconds(1)));
  EXPECT_EQ(history.waits.back().at, MonoTime(milliseconds(64)));
}

// A step after a dropped step is not merged with the last kept step.
TEST(RequestHistory, KeepsTheFirstSteps) {
  RequestHistory history;
  for (int64_t number = 0; number < 80; ++number) {
    history.Add({.step = number, .own_tokens = static_cast<int32_t>(number)});
  }
  history.Add({.step = 80, .own_tokens = RequestHistory::kSteps - 1});
  ASSERT_EQ(history.steps.size(), RequestHistory::kSteps);
  EXPECT_EQ(history.steps.back().count, 1);
}

class DecisionHistoryTest : public ::testing::Test {
 protected:
  void Add(DecisionHistory* history, const std::string& id, int64_t prompt_tokens) {
    Request request;
    Mutable(request.spec).id = id;
    Mutable(request.spec).model = model_;
    history->Add(request, absl::OkStatus(), {.prompt_tokens = prompt_tokens}, {});
  }

  const std::shared_ptr<const Model> model_ = FakeModel(FakeConfig());
};

TEST_F(DecisionHistoryTest, FindsTheLatestDecisionsOfAnId) {
  DecisionHistory history(3);
  Add(&history, "a", 1);
  Add(&history, "b", 2);
  Add(&history, "a", 3);
  EXPECT_EQ(history.Find("a")->trace.prompt_tokens, 3);
  EXPECT_EQ(history.Find("b")->trace.prompt_tokens, 2);
  Add(&history, "c", 4);
  Add(&history, "d", 5);  // the first "a" and "b" are dropped
  EXPECT_EQ(history.Find("b").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(history.Find("a")->trace.prompt_tokens, 3);
  Add(&history, "e", 6);
  EXPECT_FALSE(history.Find("a").ok());
}

TEST_F(DecisionHistoryTest, KeepsNothingIfTheCapacityIsZeroOrTheIdIsEmpty) {
  DecisionHistory none(0), some(2);
  Add(&none, "a", 1);
  EXPECT_FALSE(none.Find("a").ok());
  Add(&some, "", 1);
  EXPECT_FALSE(some.Find("").ok());
}

TEST_F(DecisionHistoryTest, GrowsWithoutMovingItsRequests) {
  constexpr int kRequests = 1024;
  DecisionHistory history(kRequests);
  const MemoryPeak peak;
  for (int i = 0; i < kRequests; ++i) Add(&history, "id", 1);
  EXPECT_LT(peak.bytes(), kRequests * static_cast<int64_t>(sizeof(Explanation)) / 4);
}

TEST(HistoryOptions, TheLargestHistoryTakesLessThanAGibibyte) {
  constexpr int64_t kBytes = sizeof(Explanation) + RequestHistory::kSteps * sizeof(ExplainedStep) +
                             RequestHistory::kWaits * sizeof(ExplainedWait);
  EXPECT_LT(kBytes, 11'000) << "as the help text says";
  EXPECT_LT(OptionSpecOf<HistoryOptions>("requests").integer->max * kBytes, 1 << 30);
}

TEST(Explain, ListsEveryStepOfTheRequestAndItsCoBatchedRequests) {
  Gate gate;
  Harness harness;
  harness.HoldReplaysAt(&gate);
  const auto first = harness.Submit(harness.MakeRequest({{1}}));
  gate.AwaitArrivals(1);
  Request request = harness.MakeRequest({{1, 2, 3}, {4, 5}}, /*max_tokens=*/2);
  Mutable(request.spec).id = "the one";
  const auto sink = harness.Submit(request);
  request = harness.MakeRequest({{6, 7, 8, 9}});
  Mutable(request.spec).id = "mate";
  const auto mate = harness.Submit(request);
  gate.Open();
  for (const auto& waited : {first, sink, mate}) waited->AwaitDone();
  const absl::StatusOr<Explanation> explained = harness.engine->Explain("the one", "");
  ASSERT_TRUE(explained.ok()) << explained.status();
  EXPECT_EQ(explained->model, "fake");
  EXPECT_EQ(explained->version, 1);
  EXPECT_TRUE(explained->status.ok());
  EXPECT_EQ(explained->trace.prompt_tokens, 5);
  ASSERT_EQ(explained->steps.size(), 2u);
  const ExplainedStep& step = explained->steps[0];
  EXPECT_EQ(step.step, 2);
  EXPECT_EQ(step.own_tokens, 5);
  EXPECT_EQ(step.batch, (BatchSize{.tokens = 9, .sequences = 3, .longest = 4}));
  EXPECT_EQ(step.bucket.tokens, harness.observer.batches()[1].bucket.tokens);
  EXPECT_EQ(step.lookup, Lookup::kHit);
  ASSERT_NE(step.co_batched, nullptr);
  EXPECT_EQ(step.co_batched->requests, 2);
  ASSERT_EQ(step.co_batched->named.size(), 2u);
  EXPECT_EQ(step.co_batched->named[0]->id, "the one");
  EXPECT_EQ(step.co_batched->named[1]->id, "mate");
  EXPECT_EQ(explained->steps[1].co_batched->named.size(), 1u);
  EXPECT_EQ(explained->steps[1].own_tokens, 2);
  EXPECT_EQ(harness.engine->Explain("mate", "")->steps[0].own_tokens, 4);
  EXPECT_EQ(harness.engine->Explain("unknown", "").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(harness.engine->Explain("mate", "fake")->steps[0].own_tokens, 4);
  const absl::Status other = harness.engine->Explain("mate", "other").status();
  EXPECT_EQ(other.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(other.message(), "no model 'other'; served: fake");
}

TEST(Explain, ShowsTheStatusOfARequestThatNeverRan) {
  Gate gate;
  Harness harness;
  harness.HoldReplaysAt(&gate);
  const auto running = harness.Submit(harness.MakeRequest({{1}}));
  gate.AwaitArrivals(1);
  Request request = harness.MakeRequest({{2}});
  Mutable(request.spec).id = "gone";
  RequestId id = 0;
  const auto cancelled = harness.Submit(request, &id);
  harness.engine->Cancel(id);
  gate.Open();
  cancelled->AwaitDone();
  running->AwaitDone();
  const absl::StatusOr<Explanation> explained = harness.engine->Explain("gone", "");
  ASSERT_TRUE(explained.ok());
  EXPECT_EQ(explained->status.code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(explained->steps.empty());
}

}  // namespace
}  // namespace sluice
