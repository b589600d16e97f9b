// What a request receives: scores, tokens, candidates, and where generation stops.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/harness.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

TEST(Generation, ScoresAndDrawsOneToken) {
  Harness harness;
  Request request = harness.MakeRequest({{1, 2, 3}, {4, 5}});
  request.outputs = kOutputTokens | kOutputPromptLogprobs;
  const auto sink = harness.Submit(request);
  sink->AwaitDone();
  ASSERT_TRUE(sink->status().ok()) << sink->status();
  EXPECT_EQ(sink->row_tokens(0), Greedy({1, 2, 3}, 1));
  EXPECT_EQ(sink->row_tokens(1), Greedy({4, 5}, 1));
  EXPECT_EQ(sink->reply().prompt_logprobs.size(), 5u);
  EXPECT_THAT(sink->reply().finish, ElementsAre(FinishReason::kLength, FinishReason::kLength));
}

TEST(Generation, ScoresOnlyInOneStep) {
  Harness harness;
  for (const uint32_t outputs : {0u, uint32_t{kOutputTokens}, uint32_t{kOutputLogits}}) {
    SCOPED_TRACE(outputs);
    Request request = harness.MakeRequest({{1, 2, 3}}, /*max_tokens=*/0);
    request.outputs = outputs;
    const auto sink = harness.Submit(request);
    sink->AwaitDone();
    EXPECT_TRUE(sink->status().ok());
    EXPECT_TRUE(sink->tokens().empty());
    EXPECT_EQ(sink->trace().steps, 1);
    EXPECT_THAT(sink->reply().finish, ElementsAre(FinishReason::kNone));
    EXPECT_EQ(sink->reply().logits.size(), outputs == kOutputLogits ? 97u : 0u);
  }
}

TEST(Generation, GeneratesWhatOneAtATimeDoes) {
  Harness harness;
  const std::vector<std::vector<int32_t>> prompts = {{1, 2, 3}, {4}, {5, 6, 7, 8, 9, 10}};
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (const auto& prompt : prompts) {
    sinks.push_back(harness.Submit(harness.MakeRequest({prompt, {42}}, /*max_tokens=*/9)));
  }
  for (size_t i = 0; i < prompts.size(); ++i) {
    sinks[i]->AwaitDone();
    EXPECT_EQ(sinks[i]->row_tokens(0), Greedy(prompts[i], 9));
    EXPECT_EQ(sinks[i]->row_tokens(1), Greedy({42}, 9));
    EXPECT_EQ(sinks[i]->trace().generated_tokens, 18);
    EXPECT_GE(sinks[i]->trace().steps, 9);
  }
}

TEST(Generation, SeedsEveryDrawByItsOwnIndexAndRow) {
  Harness harness;
  Request request = harness.MakeRequest({{1, 2}, {1, 2}}, /*max_tokens=*/3);
  request.sampling.temperature = 1.0f;
  request.sampling.seed = 77;
  const auto sink = harness.Submit(request);
  sink->AwaitDone();
  for (int32_t row = 0; row < 2; ++row) {
    std::vector<int32_t> sequence = {1, 2};
    kernels::SampleParams params = request.sampling;
    params.sample = static_cast<uint32_t>(row);
    for (params.token_index = 0; params.token_index < 3; ++params.token_index) {
      sequence.push_back(fake::Draw(sequence, params, 97).token);
    }
    EXPECT_THAT(sink->row_tokens(row), ElementsAreArray(sequence.begin() + 2, sequence.end()));
  }
}

TEST(Generation, StopsAtAnEosAndDoesNotReturnIt) {
  const std::vector<int32_t> generated = Greedy({1, 2, 3}, 3);
  ASSERT_THAT(generated, ::testing::Each(::testing::Not(generated[0] == generated[2])));
  ModelConfig config = FakeConfig();
  config.eos_token_ids = {1000, generated[2]};
  Harness harness(SmallOptions(), config);
  Request request = harness.MakeRequest({{1, 2, 3}}, /*max_tokens=*/10);
  request.outputs = kOutputTokens | kOutputTopCandidates;
  request.num_top = 2;
  const auto sink = harness.Submit(request);
  sink->AwaitDone();
  EXPECT_THAT(sink->row_tokens(0), ElementsAre(generated[0], generated[1]));
  EXPECT_THAT(sink->reply().finish, ElementsAre(FinishReason::kStop));
  EXPECT_EQ(sink->reply().top_ids.size(), 4u);
  EXPECT_EQ(sink->reply().top_logprobs.size(), 4u);
  EXPECT_EQ(sink->trace().steps, 3);
  EXPECT_EQ(sink->trace().generated_tokens, 2);
}

TEST(Generation, StopsWhereThePositionsEnd) {
  Harness harness;
  const std::vector<int32_t> prompt(62, 9);
  const auto sink = harness.Submit(harness.MakeRequest({prompt}, /*max_tokens=*/50));
  sink->AwaitDone();
  EXPECT_EQ(sink->row_tokens(0), Greedy(prompt, 3));  // after 62, 63 and 64 positions
  EXPECT_THAT(sink->reply().finish, ElementsAre(FinishReason::kLength));
}

}  // namespace
}  // namespace sluice
