// Tests of the inputs and outputs of models that do not generate from token ids.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "server/protocol/parameters/parameters.h"
#include "server/protocol/request/item_lists.h"
#include "server/protocol/tensors/inputs.h"
#include "server/protocol/tensors/outputs.h"
#include "tests/server/protocol/messages.h"
#include "tests/server/protocol/request/validated.h"
#include "tests/support/fake_backend.h"
#include "tests/support/table.h"

namespace sluice {
namespace {

using inference::ModelInferRequest;
using testing::AddInput;
using testing::Bytes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::IdsRequest;
using testing::kSmallLimits;
using testing::SetInt;

using Change = std::function<void(ModelConfig*)>;

absl::StatusOr<ValidRequest> Check(const ModelInferRequest& message, const Change& change = {}) {
  ModelConfig config = FakeConfig();
  if (change) change(&config);
  return Validate(message, kSmallLimits, {.model = FakeModel(config)});
}

std::string ErrorOf(const ModelInferRequest& message, const Change& change = {}) {
  return testing::InvalidArgument(Check(message, change).status());
}

void SetText(ModelInferRequest* message, const std::string& name, const std::string& value) {
  (*message->mutable_parameters())[name].set_string_param(value);
}

void Headless(ModelConfig* config) { config->has_lm_head = false; }
void Bidirectional(ModelConfig* config) { config->causal = false; }
void Classifying(ModelConfig* config) { config->serving.classifier.labels = 3; }
void Embedding(ModelConfig* config) {
  config->input = InputKind::kEmbeds;
  config->input_width = 2;
}
void Both(ModelConfig* config) {
  config->input = InputKind::kBoth;
  config->input_width = 2;
}

ModelInferRequest Vectors(const std::vector<float>& values, std::vector<int64_t> shape) {
  ModelInferRequest message;
  AddInput(&message, "inputs_embeds", "FP32", shape, Bytes(values));
  return message;
}

TEST(ValidateOutputsTest, EachKindOfModelHasItsDefaultOutputs) {
  const ModelInferRequest message = IdsRequest({1, 2});
  EXPECT_EQ(Check(message)->request.spec->max_tokens, 1);
  for (const Change& change : {Change(Headless), Change(Bidirectional)}) {
    const auto valid = Check(message, change);
    ASSERT_TRUE(valid.ok()) << valid.status();
    EXPECT_THAT(valid->reply.outputs, ElementsAre(Output::kEmbedding));
    EXPECT_EQ(valid->request.spec->max_tokens, 0);
  }
  const auto scores = Check(message, Classifying);
  EXPECT_THAT(scores->reply.outputs, ElementsAre(Output::kScores));
  EXPECT_EQ(scores->request.spec->max_tokens, 0);
}

TEST(ValidateOutputsTest, DrawsNoTokensIfNoneAreReturned) {
  ModelInferRequest message = IdsRequest({1, 2});
  message.add_outputs()->set_name("embedding");
  EXPECT_EQ(Check(message)->request.spec->max_tokens, 0);
  message.add_outputs()->set_name("logprobs");
  EXPECT_EQ(Check(message)->request.spec->max_tokens, 1);
}

TEST(ValidateOutputsTest, TheErrorExplainsWhyAModelGeneratesNoTokens) {
  ModelInferRequest message = IdsRequest({1, 2});
  SetInt(&message, "max_tokens", 1);
  EXPECT_THAT(ErrorOf(message, Headless), HasSubstr("it has no head"));
  EXPECT_THAT(ErrorOf(message, Bidirectional), HasSubstr("bidirectional"));
  ModelInferRequest named = IdsRequest({1, 2});
  named.add_outputs()->set_name("output_ids");
  EXPECT_THAT(ErrorOf(named, Headless),
              HasSubstr("\"output_ids\" is unknown to this model, which has token_count, token_"));
}

TEST(ValidateOutputsTest, AClassifierHasNoEmbeddingUnlessItsFilesStateOne) {
  const Change of_tokens = [](ModelConfig* config) {
    Classifying(config);
    config->serving.classifier.of_tokens = true;
  };
  const Change stated = [](ModelConfig* config) {
    Classifying(config);
    config->serving.states_embedding = true;
  };
  ModelInferRequest message = IdsRequest({1, 2});
  message.add_outputs()->set_name("embedding");
  for (const Change& change : {Change(Classifying), of_tokens}) {
    EXPECT_THAT(ErrorOf(message, change),
                HasSubstr("\"embedding\" is missing, because this model is a classifier"));
  }
  EXPECT_TRUE(Check(message, stated).ok());
  EXPECT_TRUE(Check(message, Headless).ok());
  ModelInferRequest spans = IdsRequest({1, 2});
  spans.add_outputs()->set_name("span_embeddings");
  EXPECT_THAT(ErrorOf(spans, Classifying), HasSubstr("\"span_embeddings\" is unknown"));
}

TEST(ValidateOutputsTest, ParametersOfStatesReachTheEngine) {
  ModelInferRequest message = IdsRequest({1, 2});
  const Change defaults = [](ModelConfig* config) {
    Classifying(config);
    config->serving.pooling = Pooling::kCls;
    config->serving.normalize = true;
  };
  EXPECT_EQ(Check(message, defaults)->request.spec->states.pooling, Poolings(Pooling::kCls));
  EXPECT_TRUE(Check(message, defaults)->request.spec->states.normalize);
  SetText(&message, "pooling", "last");
  SetText(&message, "activation", "sigmoid");
  SetText(&message, "candidate_activation", "log_softmax");
  SetInt(&message, "normalize", 0);
  const auto valid = Check(message, defaults);
  ASSERT_TRUE(valid.ok()) << valid.status();
  EXPECT_EQ(valid->request.spec->states.pooling, Poolings(Pooling::kLast));
  EXPECT_FALSE(valid->request.spec->states.normalize);
  EXPECT_EQ(valid->request.spec->states.scores, ScoreScale::kSigmoid);
  EXPECT_EQ(valid->request.spec->states.candidates, ScoreScale::kLogSoftmax);
  SetText(&message, "pooling", "median");
  EXPECT_THAT(ErrorOf(message),
              HasSubstr("pooling is \"median\"; expected one of mean, cls, last, max"));
}

TEST(ValidateOutputsTest, OnlyVectorsWithinTheLengthsAreCopied) {
  const float nan = std::nanf("");
  ModelInferRequest message = Vectors({1, 2, 3, 4, 5, 6, nan, nan}, {2, 2, 2});
  AddInput(&message, "input_lengths", "INT32", {2, 1}, Bytes<int32_t>({2, 1}));
  const auto valid = Check(message, Both);
  ASSERT_TRUE(valid.ok()) << valid.status();
  EXPECT_THAT(valid->request.inputs, ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(valid->request.spec->lengths, ElementsAre(2, 1));
  EXPECT_THAT(valid->request.tokens, ElementsAre(0, 0, 0));
}

TEST(ValidateOutputsTest, Bfloat16AndTypedContentsMeanTheSame) {
  ModelInferRequest narrow;
  AddInput(&narrow, "inputs_embeds", "BF16", {1, 1, 2}, Bytes<uint16_t>({0x3f80, 0xc000}));
  ModelInferRequest typed = Vectors({}, {1, 1, 2});
  typed.clear_raw_input_contents();
  for (const float value : {1.0f, -2.0f}) {
    typed.mutable_inputs(0)->mutable_contents()->add_fp32_contents(value);
  }
  for (const ModelInferRequest& message : {narrow, typed}) {
    const auto valid = Check(message, Embedding);
    ASSERT_TRUE(valid.ok()) << valid.status();
    EXPECT_THAT(valid->request.inputs, ElementsAre(1, -2));
  }
}

struct BrokenVectorsRow {
  const char* name;
  ModelInferRequest message;
  const char* error;
};
class BrokenVectorsTable : public TableTest<BrokenVectorsRow> {};

TEST_P(BrokenVectorsTable, TheErrorNamesTheProblem) {
  EXPECT_THAT(ErrorOf(row().message, Both), HasSubstr(row().error));
}

const BrokenVectorsRow kBrokenVectorsRows[] = {
    {.name = "AnInfiniteValue",
     .message = Vectors({1, 2, 3, std::numeric_limits<float>::infinity()}, {1, 2, 2}),
     .error = "inputs_embeds [0, 1, 1] is not finite"},
    {.name = "AWidthThatIsNotTheModels",
     .message = Vectors({1, 2, 3}, {1, 1, 3}),
     .error = "3 values a position; expected 2 to 2"},
    {.name = "TooFewBytes",
     .message = Vectors({1, 2, 3}, {1, 2, 2}),
     .error = "12 raw bytes; its shape [1, 2, 2] needs 16"},
    {.name = "TwoDimensions",
     .message = Vectors({1, 2}, {1, 2}),
     .error = "2 dimensions; expected 3"},
    {.name = "MoreRowsThanTheLimit", .message = Vectors({1, 2}, {5, 1, 2}), .error = "5 rows"},
    {.name = "ColumnsThatOverflow",
     .message = Vectors({1, 2}, {4, int64_t{1} << 62, 2}),
     .error = "columns"},
    {.name = "NegativeColumns", .message = Vectors({1, 2}, {1, -1, 2}), .error = "-1 columns"},
    {.name = "MorePositionsThanTheModelHas",
     .message = Vectors(std::vector<float>(130), {1, 65, 2}),
     .error = "inputs_embeds [0] has 65 tokens"},
};
SLUICE_TABLE(BrokenVectorsTable, kBrokenVectorsRows);

TEST(ValidateOutputsTest, RefusesPromptKindsThatTheModelDoesNotTake) {
  EXPECT_THAT(ErrorOf(Vectors({1, 2}, {1, 1, 2})), HasSubstr("inputs_embeds"));
  EXPECT_THAT(ErrorOf(IdsRequest({1}), Embedding),
              HasSubstr("is unknown; this model takes inputs_embeds"));
  ModelInferRequest twice = IdsRequest({1});
  AddInput(&twice, "inputs_embeds", "FP32", {1, 1, 2}, Bytes<float>({1, 2}));
  EXPECT_THAT(ErrorOf(twice, Both), HasSubstr("cannot be combined with input_ids"));
  EXPECT_THAT(ErrorOf(ModelInferRequest(), Both),
              HasSubstr("input_ids is missing, and so is inputs_embeds"));
}

TEST(ValidateOutputsTest, SeveralTokensNeedAModelThatCanContinue) {
  ModelInferRequest message = Vectors({1, 2}, {1, 1, 2});
  SetInt(&message, "max_tokens", 2);
  EXPECT_TRUE(Check(message, Both).ok());
  EXPECT_THAT(ErrorOf(message, Embedding), HasSubstr("only embeddings"));
  ModelInferRequest ids = IdsRequest({1});
  SetInt(&ids, "max_tokens", 2);
  const Change end = [](ModelConfig* config) {
    config->serving.alignment = PositionAlignment::kEnd;
  };
  EXPECT_THAT(ErrorOf(ids, end), HasSubstr("the maximum is 1"));
  SetInt(&ids, "max_tokens", 1);
  EXPECT_TRUE(Check(ids, end).ok());
  ModelInferRequest scored = Vectors({1, 2}, {1, 1, 2});
  scored.add_outputs()->set_name("prompt_logprobs");
  EXPECT_THAT(ErrorOf(scored, Both), HasSubstr("prompt_logprobs"));
}

TEST(ValidateOutputsTest, LongRowsAreCutAsTheRequestOrTheModelSpecifies) {
  ModelInferRequest message;
  std::vector<int32_t> ids(2 * 70, 5);
  ids[0] = 1;   // the first token of the first row, which has 70
  ids[69] = 2;  // the last token of the first row
  ids[70] = 3;  // the only token of the second row
  AddInput(&message, "input_ids", "INT32", {2, 70}, Bytes(ids));
  AddInput(&message, "input_lengths", "INT32", {2, 1}, Bytes<int32_t>({70, 1}));
  EXPECT_THAT(ErrorOf(message), HasSubstr("input_ids [0] has 70 tokens; expected 1 to 64"));
  const Change left = [](ModelConfig* config) { config->serving.truncate = Truncation::kLeft; };
  const auto cut = Check(message, left);
  ASSERT_TRUE(cut.ok()) << cut.status();
  EXPECT_THAT(cut->request.spec->lengths, ElementsAre(64, 1));
  EXPECT_EQ(cut->request.tokens[63], 2);
  EXPECT_EQ(cut->request.tokens[64], 3);
  EXPECT_EQ(cut->reply.cut_tokens, 6);
  SetText(&message, "truncate", "right");
  const auto right = Check(message, left);
  EXPECT_EQ(right->request.tokens[0], 1);
  EXPECT_EQ(right->request.tokens[63], 5);
  EXPECT_EQ(right->request.tokens[64], 3);
  SetInt(&message, "max_tokens", 10);
  EXPECT_THAT(Check(message)->request.spec->lengths, ElementsAre(55, 1))
      << "room for the generated tokens";
  SetText(&message, "truncate", "error");
  EXPECT_FALSE(Check(message, left).ok());
}

TEST(ValidateOutputsTest, CandidatesAreScoredRowByRow) {
  ModelInferRequest message;
  AddInput(&message, "input_ids", "INT32", {2, 1}, Bytes<int32_t>({1, 2}));
  AddInput(&message, "candidate_ids", "INT64", {2, 3}, Bytes<int64_t>({5, 6, -1, 96, 0, 5}));
  const auto valid = Check(message);
  ASSERT_TRUE(valid.ok()) << valid.status();
  EXPECT_THAT(valid->request.candidates.Of(0), ElementsAre(5, 6, -1));
  EXPECT_THAT(valid->request.candidates.Of(1), ElementsAre(96, 0, 5));
  EXPECT_NE(valid->request.outputs & kOutputCandidates, 0u);
  ModelInferRequest unwanted = message;
  unwanted.add_outputs()->set_name("logits");
  EXPECT_THAT(ErrorOf(unwanted), HasSubstr("candidate_scores or candidate_order; neither"));
  ModelInferRequest without = IdsRequest({1});
  without.add_outputs()->set_name("candidate_scores");
  EXPECT_THAT(ErrorOf(without), HasSubstr("needs the input candidate_ids"));
  message.set_raw_input_contents(1, Bytes<int64_t>({5, 6, -1, 97, 0, 5}));
  EXPECT_THAT(ErrorOf(message), HasSubstr("candidate_ids [1, 0] is 97; expected 0 to 96"));
  message.mutable_inputs(1)->set_shape(0, 3);
  EXPECT_THAT(ErrorOf(message), HasSubstr("3 rows; expected 2 to 2"));
  message.mutable_inputs(1)->set_shape(0, 2);
  message.mutable_inputs(1)->set_shape(1, kMaxCandidates + 1);
  EXPECT_THAT(ErrorOf(message), HasSubstr("expected 1 to 4096"));
}

TEST(ValidateOutputsTest, ExclusionsMustLeaveEnoughTokens) {
  ModelInferRequest message = IdsRequest({1});
  AddInput(&message, "exclude_ids", "INT32", {1, 4}, Bytes<int32_t>({9, -1, 3, 9}));
  EXPECT_THAT(Check(message)->request.excluded.Of(0), ElementsAre(3, 9));
  SetInt(&message, "num_top_logprobs", 96);
  EXPECT_THAT(ErrorOf(message), HasSubstr("leaves 95 tokens for row 0"));
  SetInt(&message, "num_top_logprobs", 95);
  EXPECT_TRUE(Check(message).ok());
  SetText(&message, "allowed_token_ids", "3,9");
  EXPECT_THAT(ErrorOf(message), HasSubstr("no token to draw"));
  SetText(&message, "allowed_token_ids", "3,9,10");
  EXPECT_TRUE(Check(message).ok());
  SetText(&message, "logit_bias", "{\"10\": null}");
  EXPECT_THAT(ErrorOf(message), HasSubstr("no token to draw"));

  std::vector<int32_t> all(97);
  for (int32_t i = 0; i < 97; ++i) all[static_cast<size_t>(i)] = i;
  ModelInferRequest none = IdsRequest({1});
  AddInput(&none, "exclude_ids", "INT32", {1, 97}, Bytes(all));
  EXPECT_THAT(ErrorOf(none), HasSubstr("no token to draw"));
}

}  // namespace
}  // namespace sluice
