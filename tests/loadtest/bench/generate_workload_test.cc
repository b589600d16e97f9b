#include "loadtest/bench/daemon/generate_workload.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "proto/inference.pb.h"

namespace sluice::loadtest {
namespace {

constexpr int32_t kPositions = 256, kVocab = 258;

TEST(DrawConversationsTest, MostAnswersAreShortAndAFewAreLong) {
  const std::vector<TraceRow> rows = DrawConversations(20'000, 5);
  std::vector<int32_t> answers;
  for (const TraceRow& row : rows) {
    ASSERT_GE(row.input_tokens, 8);
    ASSERT_LE(row.input_tokens, 48);
    answers.push_back(row.output_tokens);
  }
  std::sort(answers.begin(), answers.end());
  EXPECT_EQ(answers.front(), 8);
  EXPECT_EQ(answers.back(), 200);
  EXPECT_LT(answers[answers.size() / 2], 60);
  EXPECT_GT(answers[answers.size() * 9 / 10], 110);
  // Answers do not accumulate at the limit.
  EXPECT_LT(std::count(answers.begin(), answers.end(), 200), 30);
}

TEST(GenerateWorkloadTest, StoresTheNumberOfTokensEachRequestGenerates) {
  GenerateWorkload workload(kPositions, kVocab, 3);
  const absl::StatusOr<Traffic> closed = workload.Closed(4, std::chrono::seconds(1));
  const absl::StatusOr<Traffic> open = workload.Open(500, std::chrono::seconds(1));
  ASSERT_TRUE(closed.ok() && open.ok());
  EXPECT_EQ(closed->outstanding, 4);
  EXPECT_EQ(open->outstanding, 0);
  ASSERT_EQ(workload.answer_tokens().size(), workload.pool().payloads().size());
  for (const Traffic* traffic : {&*closed, &*open}) {
    for (size_t i = 0; i < traffic->arrivals.size(); ++i) {
      const load::Payload& payload = workload.pool().payloads()[traffic->payloads[i]];
      inference::ModelInferRequest request;
      ASSERT_TRUE(
          request.ParseFromArray(payload.bytes.begin(), static_cast<int>(payload.bytes.size())));
      const int64_t tokens = request.parameters().at("max_tokens").int64_param();
      ASSERT_EQ(tokens, traffic->arrivals[i].max_tokens);
      ASSERT_EQ(tokens, workload.answer_tokens()[traffic->payloads[i]]);
      ASSERT_TRUE(request.parameters().at("ignore_eos").bool_param());
      ASSERT_LE(request.inputs(0).shape(1) + tokens, kPositions + 1);
    }
  }
}

TEST(GenerateWorkloadTest, PhasesDifferAndTheSeedRepeatsThem) {
  const auto lengths = [](const Traffic& traffic) {
    std::vector<int32_t> all;
    for (const load::Arrival& arrival : traffic.arrivals) all.push_back(arrival.max_tokens);
    return all;
  };
  GenerateWorkload one(kPositions, kVocab, 3), other(kPositions, kVocab, 3);
  const auto first = one.Closed(4, std::chrono::seconds(1));
  const auto second = one.Closed(4, std::chrono::seconds(1));
  const auto again = other.Closed(4, std::chrono::seconds(1));
  EXPECT_NE(lengths(*first), lengths(*second));
  EXPECT_EQ(lengths(*first), lengths(*again));
}

}  // namespace
}  // namespace sluice::loadtest
