#include "server/protocol/request/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/protocol/messages.h"
#include "tests/server/protocol/request/validated.h"
#include "tests/support/fake_backend.h"

namespace sluice {
namespace {

using inference::ModelInferRequest;
using testing::AddInput;
using testing::Bytes;
using testing::BytesElement;
using ::testing::ElementsAre;
using testing::ErrorOf;
using ::testing::HasSubstr;
using testing::IdsRequest;
using testing::kSmallLimits;
using testing::SetInt;
using testing::TextRequest;
using testing::Validated;

TEST(ValidateTest, AcceptsRawIds) {
  const absl::StatusOr<ValidRequest> valid = Validated(IdsRequest({1, 2, 257}));
  ASSERT_TRUE(valid.ok()) << valid.status();
  EXPECT_THAT(valid->request.tokens, ElementsAre(1, 2, 257));
  EXPECT_THAT(valid->request.spec->lengths, ElementsAre(3));
  EXPECT_EQ(valid->request.spec->max_tokens, 1);
  EXPECT_EQ(valid->request.spec->priority, kDefaultPriority);
  EXPECT_EQ(valid->request.deadline, MonoTime::max());
  EXPECT_EQ(valid->request.outputs, kOutputTokens);
  EXPECT_FALSE(valid->reply.drawn_seed.has_value());
}

TEST(ValidateTest, Int64AndTypedContentsMeanTheSame) {
  ModelInferRequest raw;
  AddInput(&raw, "input_ids", "INT64", {2, 2}, Bytes<int64_t>({1, 2, 3, 4}));
  ModelInferRequest typed;
  auto* input = typed.add_inputs();
  input->set_name("input_ids");
  input->add_shape(2);
  input->add_shape(2);
  for (int i : {1, 2, 3, 4}) input->mutable_contents()->add_int64_contents(i);
  input->set_datatype("INT64");
  ModelInferRequest narrow = typed;
  narrow.mutable_inputs(0)->set_datatype("INT32");
  narrow.mutable_inputs(0)->clear_contents();
  for (int i : {1, 2, 3, 4}) {
    narrow.mutable_inputs(0)->mutable_contents()->add_int_contents(i);
  }
  for (const ModelInferRequest& message : {raw, typed, narrow}) {
    const absl::StatusOr<ValidRequest> valid = Validated(message);
    ASSERT_TRUE(valid.ok()) << valid.status();
    EXPECT_THAT(valid->request.tokens, ElementsAre(1, 2, 3, 4));
    EXPECT_THAT(valid->request.spec->lengths, ElementsAre(2, 2));
  }
}

TEST(ValidateTest, PaddingIsIgnored) {
  ModelInferRequest message;
  AddInput(&message, "input_ids", "INT32", {2, 3}, Bytes<int32_t>({5, -1, 9999, 6, 7, -100}));
  AddInput(&message, "input_lengths", "INT32", {2, 1}, Bytes<int32_t>({1, 2}));
  const absl::StatusOr<ValidRequest> valid = Validated(message);
  ASSERT_TRUE(valid.ok()) << valid.status();
  EXPECT_THAT(valid->request.tokens, ElementsAre(5, 6, 7));
  EXPECT_THAT(valid->request.spec->lengths, ElementsAre(1, 2));
  EXPECT_THAT(valid->reply.request->lengths, ElementsAre(1, 2));
}

TEST(ValidateTest, TextIsTokenized) {
  ModelInferRequest message;
  AddInput(&message, "text_input", "BYTES", {2, 1}, BytesElement("ab") + BytesElement(""));
  const absl::StatusOr<ValidRequest> valid = Validated(message);
  ASSERT_TRUE(valid.ok()) << valid.status();
  EXPECT_THAT(valid->request.tokens, ElementsAre(256, 'a', 'b', 256));
  EXPECT_THAT(valid->request.spec->lengths, ElementsAre(3, 1));

  ModelInferRequest typed;
  auto* input = typed.add_inputs();
  input->set_name("text_input");
  input->set_datatype("BYTES");
  input->add_shape(1);
  input->add_shape(1);
  input->mutable_contents()->add_bytes_contents("ab");
  EXPECT_THAT(Validated(typed)->request.tokens, ElementsAre(256, 'a', 'b'));
}

TEST(ValidateTest, ATextAfterACutTextKeepsItsTokens) {
  for (const bool left : {false, true}) {
    ModelInferRequest message;
    AddInput(&message, "text_input", "BYTES", {2, 1},
             BytesElement(std::string(100, 'a')) + BytesElement("bc"));
    (*message.mutable_parameters())["truncate"].set_string_param(left ? "left" : "right");
    testing::SetInt(&message, "max_tokens", 1);
    const absl::StatusOr<ValidRequest> valid = Validated(message);
    ASSERT_TRUE(valid.ok()) << valid.status();
    std::vector<int32_t> expected(64, 'a');
    expected[0] = 256;  // The template's tokens stay on both sides.
    expected.insert(expected.end(), {256, 'b', 'c'});
    EXPECT_EQ(valid->request.tokens, expected);
    EXPECT_EQ(valid->reply.cut_tokens, 37);
  }
}

TEST(ValidateTest, TextNeedsAModelWithATokenizer) {
  const auto model = FakeModel(FakeConfig());
  const absl::Status status = Validate(TextRequest("a"), kSmallLimits, {.model = model}).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("text_input"));
  ModelInferRequest ids = IdsRequest({1});
  ids.add_outputs()->set_name("text_output");
  EXPECT_FALSE(Validate(ids, kSmallLimits, {.model = model}).ok());
  EXPECT_EQ(Validate(IdsRequest({1}), kSmallLimits, {.model = model})->reply.outputs.size(), 4u);
}

TEST(ValidateTest, OutputsAreReturnedInTheOrderRequested) {
  ModelInferRequest message = IdsRequest({1});
  for (const char* name : {"logits", "output_ids", "xsa_cos_sim", "prompt_logprobs"}) {
    message.add_outputs()->set_name(name);
  }
  const absl::StatusOr<ValidRequest> valid = Validated(message);
  ASSERT_TRUE(valid.ok()) << valid.status();
  EXPECT_EQ(valid->request.outputs,
            kOutputLogits | kOutputTokens | kOutputDiagnostics | kOutputPromptLogprobs);
  EXPECT_THAT(valid->reply.outputs, ElementsAre(Output::kLogits, Output::kOutputIds,
                                                Output::kXsaCosSim, Output::kPromptLogprobs));

  ModelInferRequest twice = message;
  twice.add_outputs()->set_name("logits");
  EXPECT_THAT(ErrorOf(twice), HasSubstr("\"logits\" appears twice"));
  ModelInferRequest unknown = message;
  unknown.add_outputs()->set_name("hidden");
  EXPECT_THAT(ErrorOf(unknown),
              HasSubstr("\"hidden\" is unknown to this model, which has output_ids"));
  ModelInferRequest parameters = message;
  (*parameters.mutable_outputs(0)->mutable_parameters())["classification"].set_int64_param(3);
  EXPECT_THAT(ErrorOf(parameters), HasSubstr("the unknown parameter \"classification\""));
}

TEST(ValidateTest, ParametersThatOnlyStateTheFormOfTensorsHaveNoEffect) {
  ModelInferRequest message = IdsRequest({1, 2, 3});
  message.add_outputs()->set_name("logits");
  (*message.mutable_inputs(0)->mutable_parameters())["binary_data_size"].set_int64_param(12);
  (*message.mutable_outputs(0)->mutable_parameters())["binary_data"].set_bool_param(true);
  EXPECT_EQ(Validated(message).status(), absl::OkStatus());
}

TEST(ValidateTest, DiagnosticsNeedAModelWithXsa) {
  ModelConfig config = FakeConfig();
  for (const char* name : {"xsa_cos_sim", "xsa_proj_frac"}) {
    ModelInferRequest message = IdsRequest({1});
    message.add_outputs()->set_name(name);
    EXPECT_TRUE(Validate(message, kSmallLimits, {.model = FakeModel(config)}).ok());
    config.xsa.layers = {false, false};
    const absl::Status status =
        Validate(message, kSmallLimits, {.model = FakeModel(config)}).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr("is unknown"));
    config.xsa.layers = {false, true};
  }
}

TEST(ValidateTest, TopIdsNeedNumTopLogprobs) {
  ModelInferRequest message = IdsRequest({1});
  message.add_outputs()->set_name("top_ids");
  EXPECT_THAT(ErrorOf(message), HasSubstr("num_top_logprobs"));
  SetInt(&message, "num_top_logprobs", 3);
  const absl::StatusOr<ValidRequest> named = Validated(message);
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ(named->request.spec->num_top, 3);
  EXPECT_EQ(named->request.outputs, kOutputTopCandidates | kOutputTokens);

  message.clear_outputs();
  const absl::StatusOr<ValidRequest> defaults = Validated(message);
  ASSERT_TRUE(defaults.ok());
  EXPECT_THAT(defaults->reply.outputs,
              ::testing::IsSupersetOf({Output::kTopIds, Output::kTopLogprobs}));

  message.add_outputs()->set_name("output_ids");
  EXPECT_EQ(Validated(message)->request.spec->num_top, 0) << "no output contains them";
}

TEST(ValidateTest, PromptAndGeneratedTokensShareThePositions) {
  ModelInferRequest message = IdsRequest(std::vector<int32_t>(60, 1));
  SetInt(&message, "max_tokens", 5);
  EXPECT_TRUE(Validated(message).ok());
  SetInt(&message, "max_tokens", 6);
  EXPECT_THAT(ErrorOf(message), HasSubstr("together they may be at most 65"));
}

TEST(ValidateTest, ARequestWhoseReplyMayBeTooLargeIsRefused) {
  ModelInferRequest message;
  AddInput(&message, "input_ids", "INT32", {4, 1}, Bytes<int32_t>({1, 1, 1, 1}));
  message.add_outputs()->set_name("top_ids");
  message.add_outputs()->set_name("top_logprobs");
  SetInt(&message, "num_top_logprobs", 258);
  SetInt(&message, "max_tokens", 7);  // 2 * 4 * 4 * 7 * 258 = 57792
  EXPECT_TRUE(Validated(message).ok());
  SetInt(&message, "max_tokens", 8);  // 66048 > 65536
  EXPECT_THAT(ErrorOf(message), HasSubstr("max_message_bytes"));
}

// A tokenizer whose longest token decodes to 1000 bytes.
class LongTokenTokenizer final : public Tokenizer {
 public:
  absl::StatusOr<std::vector<int32_t>> EncodeBare(std::string_view, int64_t) const override {
    return std::vector<int32_t>{1};
  }
  int64_t longest_token_bytes() const override { return 1; }
  int64_t longest_decoded_bytes() const override { return 1000; }
  std::string Decode(std::span<const int32_t>) const override { return ""; }
};

TEST(ReplyBoundTest, ALongTokenCountsInTheReplysBound) {
  const std::shared_ptr<const Model> bytes = testing::TextModel();
  auto model = std::make_shared<Model>();
  model->name = "text";
  model->config = bytes->config;
  model->tokenizer = std::make_unique<LongTokenTokenizer>();
  inference::ModelInferRequest message = testing::IdsRequest({1});
  testing::SetInt(&message, "max_tokens", 40);
  const RequestLimits limits{.max_rows = 4, .max_reply_bytes = 40 * 1000};
  EXPECT_TRUE(Validate(message, limits, {.model = bytes}).ok());
  EXPECT_THAT(std::string(Validate(message, limits, {.model = model}).status().message()),
              HasSubstr("the reply may need"));
  testing::SetInt(&message, "max_tokens", 30);
  const auto valid = Validate(message, limits, {.model = model});
  ASSERT_TRUE(valid.ok()) << valid.status();
  EXPECT_GE(valid->reply.max_bytes, 30 * 1000);
}

}  // namespace
}  // namespace sluice
