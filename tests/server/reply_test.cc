#include "server/reply.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/server/messages.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::RawOutput;
using testing::ShapeOf;
using testing::Values;

ReplySpec Spec(std::vector<int32_t> lengths, std::vector<Output> outputs) {
  return {.model = testing::TextModel("m", 3),
          .id = "abc",
          .lengths = std::move(lengths),
          .outputs = std::move(outputs)};
}

const std::vector<Output> kDefaults = {Output::kOutputIds, Output::kSequenceLength,
                                       Output::kLogprobs, Output::kFinishReason,
                                       Output::kTextOutput};

TEST(ReplyTest, RowsOfDifferentLengthsArePadded) {
  const std::vector<GeneratedToken> tokens = {
      {0, 0, 'a', -1}, {2, 0, 'x', -4}, {0, 1, 'b', -2}, {2, 1, 'y', -5}, {2, 2, 'z', -6}};
  Reply reply;
  reply.finish = {FinishReason::kStop, FinishReason::kStop, FinishReason::kLength};
  inference::ModelInferResponse response;
  BuildResponse(Spec({1, 2, 1}, kDefaults), tokens, reply, &response);

  EXPECT_EQ(response.model_name(), "m");
  EXPECT_EQ(response.model_version(), "3");
  EXPECT_EQ(response.id(), "abc");
  EXPECT_EQ(response.outputs_size(), response.raw_output_contents_size());
  EXPECT_THAT(ShapeOf(response, "output_ids"), ElementsAre(3, 3));
  EXPECT_THAT(Values<int32_t>(RawOutput(response, "output_ids")),
              ElementsAre('a', 'b', -1, -1, -1, -1, 'x', 'y', 'z'));
  EXPECT_THAT(Values<float>(RawOutput(response, "logprobs")),
              ElementsAre(-1, -2, 0, 0, 0, 0, -4, -5, -6));
  EXPECT_THAT(Values<int32_t>(RawOutput(response, "sequence_length")), ElementsAre(2, 0, 3));
  EXPECT_EQ(RawOutput(response, "finish_reason"), testing::BytesElement("stop") +
                                                      testing::BytesElement("stop") +
                                                      testing::BytesElement("length"));
  EXPECT_EQ(RawOutput(response, "text_output"),
            testing::BytesElement("ab") + testing::BytesElement("") + testing::BytesElement("xyz"));
  EXPECT_EQ(response.outputs(3).datatype(), "BYTES");
  EXPECT_THAT(ShapeOf(response, "text_output"), ElementsAre(3, 1));
}

TEST(ReplyTest, ScoringOnlyHasEmptyOutputsAndStillOneEntryEach) {
  Reply reply;
  reply.finish = {FinishReason::kNone};
  reply.prompt_logprobs = {0, -1, -2};
  std::vector<Output> outputs = kDefaults;
  outputs.push_back(Output::kPromptLogprobs);
  inference::ModelInferResponse response;
  BuildResponse(Spec({3}, outputs), {}, reply, &response);
  EXPECT_EQ(response.raw_output_contents_size(), 6);
  EXPECT_THAT(ShapeOf(response, "output_ids"), ElementsAre(1, 0));
  EXPECT_THAT(RawOutput(response, "output_ids"), IsEmpty());
  EXPECT_THAT(Values<int32_t>(RawOutput(response, "sequence_length")), ElementsAre(0));
  EXPECT_EQ(RawOutput(response, "finish_reason"), testing::BytesElement(""));
  EXPECT_THAT(Values<float>(RawOutput(response, "prompt_logprobs")), ElementsAre(0, -1, -2));
}

TEST(ReplyTest, CandidatesOfRaggedRows) {
  const std::vector<GeneratedToken> tokens = {{1, 0, 7, -1}, {0, 0, 5, -1}, {1, 1, 8, -1}};
  Reply reply;
  reply.top_ids = {5, 6, 7, 9, 8, 4};
  reply.top_logprobs = {-5, -6, -7, -9, -8, -4};
  ReplySpec spec = Spec({1, 1}, {Output::kTopIds, Output::kTopLogprobs});
  spec.num_top = 2;
  inference::ModelInferResponse response;
  BuildResponse(spec, tokens, reply, &response);
  EXPECT_THAT(ShapeOf(response, "top_ids"), ElementsAre(2, 2, 2));
  EXPECT_THAT(Values<int32_t>(RawOutput(response, "top_ids")),
              ElementsAre(5, 6, -1, -1, 7, 9, 8, 4));
  EXPECT_THAT(Values<float>(RawOutput(response, "top_logprobs")),
              ElementsAre(-5, -6, 0, 0, -7, -9, -8, -4));
}

TEST(ReplyTest, DiagnosticsArePaddedPerLayer) {
  const std::vector<int32_t> lengths = {2, 3};
  const int64_t layers = 2, heads = 3, longest = 3;
  Reply reply;
  std::mt19937_64 random(7);
  for (int32_t length : lengths) {
    for (int64_t i = 0; i < layers * length * heads; ++i) {
      reply.xsa_cos_sim.push_back(static_cast<float>(1 + random() % 1000));
    }
  }
  inference::ModelInferResponse response;
  BuildResponse(Spec(lengths, {Output::kXsaCosSim}), {}, reply, &response);
  EXPECT_THAT(ShapeOf(response, "xsa_cos_sim"), ElementsAre(2, layers, longest, heads));
  const std::vector<float> padded = Values<float>(RawOutput(response, "xsa_cos_sim"));
  ASSERT_EQ(padded.size(), 2u * layers * longest * heads);
  size_t from = 0;
  for (int64_t row = 0; row < 2; ++row) {
    for (int64_t layer = 0; layer < layers; ++layer) {
      for (int64_t at = 0; at < longest * heads; ++at) {
        const bool live = at < lengths[row] * heads;
        EXPECT_EQ(padded[((row * layers) + layer) * longest * heads + at],
                  live ? reply.xsa_cos_sim[from++] : 0);
      }
    }
  }
}

TEST(ReplyTest, LogitsAreCopiedAsTheyAre) {
  Reply reply;
  for (int i = 0; i < 2 * 258; ++i) reply.logits.push_back(static_cast<float>(i) / 3);
  inference::ModelInferResponse response;
  BuildResponse(Spec({1, 1}, {Output::kLogits}), {}, reply, &response);
  EXPECT_THAT(ShapeOf(response, "logits"), ElementsAre(2, 258));
  EXPECT_EQ(Values<float>(RawOutput(response, "logits")), reply.logits);
}

TEST(ReplyTest, ADrawnSeedIsReturned) {
  ReplySpec spec = Spec({1}, {Output::kSequenceLength});
  inference::ModelInferResponse response;
  BuildResponse(spec, {}, {}, &response);
  EXPECT_EQ(response.parameters().count("seed"), 0u);
  spec.drawn_seed = 1234;
  BuildResponse(spec, {}, {}, &response);
  EXPECT_EQ(response.parameters().at("seed").int64_param(), 1234);
}

}  // namespace
}  // namespace sluice
