// Tests outputs other than tokens and inputs other than tokens: embeddings, vectors, aligned
// windows.
#include <gtest/gtest.h>

#include "tests/engine/runner/harness.h"
#include "tests/support/gate.h"
#include "tests/support/request_spec.h"

namespace sluice {
namespace {

std::vector<int32_t> Prompt(int32_t length, int32_t first = 1) {
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < length; ++i) prompt.push_back((first + 7 * i) % 97);
  return prompt;
}

// Returns the mean of the fake model's states.
std::vector<float> Mean(const std::vector<int32_t>& prompt) {
  std::vector<float> mean;
  for (int64_t i = 0; i < FakeConfig().hidden_size; ++i) {
    double sum = 0;
    for (size_t n = 1; n <= prompt.size(); ++n) sum += fake::State(std::span(prompt).first(n), i);
    mean.push_back(static_cast<float>(sum / static_cast<double>(prompt.size())));
  }
  return mean;
}

std::vector<float> Means(const std::vector<std::vector<int32_t>>& prompts) {
  std::vector<float> means;
  for (const std::vector<int32_t>& prompt : prompts) {
    const std::vector<float> mean = Mean(prompt);
    means.insert(means.end(), mean.begin(), mean.end());
  }
  return means;
}

Request EmbeddingOf(const Harness& harness, const std::vector<std::vector<int32_t>>& rows) {
  Request request = harness.MakeRequest(rows, /*max_tokens=*/0);
  request.outputs = kOutputEmbedding;
  Mutable(request.spec).states.pooling = Pooling::kMean;
  return request;
}

TEST(PromptOutputs, RowsOfAllLengthsGetTheirEmbeddings) {
  Harness harness;
  const std::vector<std::vector<int32_t>> rows = {Prompt(3), Prompt(1, 5), Prompt(64, 9)};
  const auto sink = harness.Submit(EmbeddingOf(harness, rows));
  sink->AwaitDone();
  ASSERT_TRUE(sink->status().ok()) << sink->status();
  EXPECT_EQ(sink->reply().embedding, Means(rows));
  EXPECT_TRUE(sink->tokens().empty());
  for (const BatchTrace& batch : harness.observer.batches()) EXPECT_EQ(batch.sampled_rows, 0);
}

TEST(PromptOutputs, AnEmbeddingIsTheSameWhenItsPromptIsCut) {
  EngineOptions options = SmallOptions();
  options.batch.prefill_tokens = 8;
  Harness harness(options);
  Gate gate;
  harness.HoldReplaysAt(&gate);
  const auto other = harness.Submit(harness.MakeRequest({{4, 5}}, /*max_tokens=*/40));
  gate.AwaitArrivals(1);
  const auto sink = harness.Submit(EmbeddingOf(harness, {Prompt(50)}));
  gate.Open();
  sink->AwaitDone();
  other->AwaitDone();
  ASSERT_TRUE(sink->status().ok()) << sink->status();
  EXPECT_GT(sink->trace().steps, 1) << "it was computed in one step";
  EXPECT_EQ(sink->reply().embedding, Mean(Prompt(50)));
}

TEST(PromptOutputs, OnlyLastPoolingReusesAPrefix) {
  Harness harness;
  for (const Pooling pooling : {Pooling::kLast, Pooling::kCls, Pooling::kMean}) {
    SCOPED_TRACE(static_cast<int>(pooling));
    Request request = EmbeddingOf(harness, {Prompt(20, 3)});
    Mutable(request.spec).states.pooling = pooling;
    harness.Submit(request)->AwaitDone();
    const auto again = harness.Submit(request);
    again->AwaitDone();
    EXPECT_EQ(again->trace().reused_tokens > 0, pooling == Pooling::kLast);
  }
}

TEST(PromptOutputs, GeneratesTokensAfterAPromptOfVectors) {
  ModelConfig config = FakeConfig();
  config.input = InputKind::kBoth;
  config.input_width = 2;
  Harness harness(SmallOptions(), config);
  Request request = harness.MakeRequest({{0, 0, 0}, {0}}, /*max_tokens=*/4);
  request.inputs = {1, 2, 3, 4, 5, 6, 7, 8};
  const auto sink = harness.Submit(request);
  const auto ids = harness.Submit(harness.MakeRequest({{9, 8}}, /*max_tokens=*/4));
  sink->AwaitDone();
  ids->AwaitDone();
  const auto token = [&](size_t at) {
    return fake::TokenOf(std::span<const float>(request.inputs).subspan(2 * at, 2));
  };
  EXPECT_EQ(sink->row_tokens(0), Greedy({token(0), token(1), token(2)}, 4));
  EXPECT_EQ(sink->row_tokens(1), Greedy({token(3)}, 4));
  EXPECT_EQ(ids->row_tokens(0), Greedy({9, 8}, 4));
  EXPECT_EQ(sink->trace().reused_tokens, 0);
}

TEST(PromptOutputs, WindowsAlignedAtTheirEndShareAPrefixOnlyAtEqualLength) {
  ModelConfig config = FakeConfig();
  config.serving.alignment = PositionAlignment::kEnd;
  Harness harness(SmallOptions(), config);
  harness.Submit(harness.MakeRequest({Prompt(20)}))->AwaitDone();
  const auto longer = harness.Submit(harness.MakeRequest({Prompt(24)}));
  longer->AwaitDone();
  EXPECT_EQ(longer->trace().reused_tokens, 0) << "its positions differ";
  const auto equal = harness.Submit(harness.MakeRequest({Prompt(20)}));
  equal->AwaitDone();
  EXPECT_GT(equal->trace().reused_tokens, 0);
  EXPECT_EQ(equal->row_tokens(0), Greedy(Prompt(20), 1));
}

// Padding has no effect, also with vectors and aligned windows.
TEST(PromptOutputs, APaddedLayoutGivesTheSameOutputs) {
  EngineOptions options = SmallOptions();
  options.batch.policy = PolicyKind::kPaddedBuckets;
  ModelConfig config = FakeConfig();
  config.input = InputKind::kBoth;
  config.input_width = 1;
  config.serving.alignment = PositionAlignment::kEnd;
  Harness harness(options, config);
  const std::vector<std::vector<int32_t>> rows = {Prompt(3), Prompt(30, 2), Prompt(64, 9)};
  const auto sink = harness.Submit(EmbeddingOf(harness, rows));
  Request vectors = EmbeddingOf(harness, {{0, 0}});
  vectors.inputs = {0.5f, 2.0f};
  const auto other = harness.Submit(vectors);
  sink->AwaitDone();
  other->AwaitDone();
  ASSERT_TRUE(sink->status().ok()) << sink->status();
  EXPECT_EQ(sink->reply().embedding, Means(rows));
  const std::span<const float> values(vectors.inputs);
  EXPECT_EQ(other->reply().embedding,
            Mean({fake::TokenOf(values.first(1)), fake::TokenOf(values.subspan(1))}));
}

}  // namespace
}  // namespace sluice
