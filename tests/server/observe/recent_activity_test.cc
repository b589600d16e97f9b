#include "server/observe/recent_activity.h"

#include <gtest/gtest.h>

#include <chrono>

#include "tests/server/protocol/messages.h"
#include "tests/support/fake_clock.h"
#include "tests/support/request_spec.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;

class RecentActivityTest : public ::testing::Test {
 protected:
  void EndRequest(const absl::Status& status, nanoseconds first_token, int64_t generated) {
    Request request;
    Mutable(request.spec).model = model_;
    Mutable(request.spec).lengths = {5, 5};
    RequestTrace trace;
    trace.received = clock_.Now();
    trace.queued = trace.received + milliseconds(1);
    trace.first_run = trace.received + milliseconds(3);
    if (first_token > nanoseconds(0)) trace.first_token = trace.received + first_token;
    trace.done = trace.received + milliseconds(20);
    trace.generated_tokens = generated;
    recent_.OnRequestDone(request, status, trace);
  }

  void RunBatch(int64_t tokens) {
    BatchTrace trace{};
    trace.model = model_.get();
    trace.useful_tokens = tokens;
    recent_.OnBatch(trace);
  }

  FakeClock clock_;
  const std::shared_ptr<const Model> model_ = testing::TextModel();
  RecentActivity recent_{&clock_};
};

TEST_F(RecentActivityTest, AnUnknownModelHasNoActivity) {
  const RecentActivity::View view = recent_.Of(*model_);
  EXPECT_TRUE(view.batches.empty());
  EXPECT_TRUE(view.requests.empty());
  EXPECT_FALSE(view.review.has_value());
}

TEST_F(RecentActivityTest, TheLatestBatchesComeFirst) {
  const int64_t launched = RecentActivity::kBatches + 7;
  for (int64_t tokens = 1; tokens <= launched; ++tokens) RunBatch(tokens);
  const RecentActivity::View view = recent_.Of(*model_);
  ASSERT_EQ(view.batches.size(), RecentActivity::kBatches);
  for (size_t age = 0; age < view.batches.size(); ++age) {
    EXPECT_EQ(view.batches[age].useful_tokens, launched - static_cast<int64_t>(age));
    EXPECT_EQ(view.batches[age].model, nullptr);
  }
}

TEST_F(RecentActivityTest, OnlySuccessesHaveALatency) {
  EndRequest(absl::CancelledError(""), {}, 0);
  EndRequest(absl::OkStatus(), milliseconds(8), 14);
  const RecentActivity::View view = recent_.Of(*model_);
  ASSERT_EQ(view.requests.size(), 1u);
  const RecentActivity::Latency& latency = view.requests[0];
  EXPECT_DOUBLE_EQ(latency.total, 0.020);
  EXPECT_DOUBLE_EQ(latency.queue, 0.002);
  EXPECT_DOUBLE_EQ(latency.first_token.value(), 0.008);
  EXPECT_DOUBLE_EQ(latency.inter_token.value(), 0.002) << "seven tokens per row: six gaps in 12 ms";
}

TEST_F(RecentActivityTest, LatenciesWithoutTheirEventAreAbsent) {
  EndRequest(absl::OkStatus(), {}, 0);
  EndRequest(absl::OkStatus(), milliseconds(8), 2);
  const RecentActivity::View view = recent_.Of(*model_);
  ASSERT_EQ(view.requests.size(), 2u);
  EXPECT_TRUE(view.requests[0].first_token.has_value());
  EXPECT_FALSE(view.requests[0].inter_token.has_value()) << "one token per row";
  EXPECT_FALSE(view.requests[1].first_token.has_value());
}

TEST_F(RecentActivityTest, KeepsTheLatestReviewOfEachModel) {
  ReviewReport report;
  report.reason = "first";
  recent_.OnReview(*model_, report);
  clock_.Advance(milliseconds(50));
  report.reason = "second";
  recent_.OnReview(*model_, report);
  recent_.OnReview(*testing::TextModel("text", 2), {});
  const RecentActivity::View view = recent_.Of(*model_);
  ASSERT_TRUE(view.review.has_value());
  EXPECT_EQ(view.review->report.reason, "second");
  EXPECT_EQ(view.review->at, clock_.Now());
}

}  // namespace
}  // namespace sluice
