#include "server/protocol/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>

#include "server/common/status.h"
#include "tests/server/protocol/messages.h"
#include "tests/support/fake_backend.h"
#include "tests/support/table.h"

namespace sluice {
namespace {

using inference::ModelInferRequest;
using testing::AddInput;
using testing::Bytes;
using testing::BytesElement;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::IdsRequest;
using testing::SetInt;
using testing::TextModel;
using testing::TextRequest;

constexpr RequestLimits kLimits = {.max_rows = 4, .max_reply_bytes = 1 << 16};

absl::StatusOr<ValidRequest> Check(const ModelInferRequest& message, CallContext call = {}) {
  call.model = TextModel();
  return Validate(message, kLimits, call);
}

// Returns the message of the error, which must be InvalidArgument.
std::string ErrorOf(const ModelInferRequest& message) {
  const absl::Status status = Check(message).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

TEST(ValidateTest, AcceptsRawIds) {
  const absl::StatusOr<ValidRequest> valid = Check(IdsRequest({1, 2, 257}));
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
    const absl::StatusOr<ValidRequest> valid = Check(message);
    ASSERT_TRUE(valid.ok()) << valid.status();
    EXPECT_THAT(valid->request.tokens, ElementsAre(1, 2, 3, 4));
    EXPECT_THAT(valid->request.spec->lengths, ElementsAre(2, 2));
  }
}

TEST(ValidateTest, PaddingIsIgnored) {
  ModelInferRequest message;
  AddInput(&message, "input_ids", "INT32", {2, 3}, Bytes<int32_t>({5, -1, 9999, 6, 7, -100}));
  AddInput(&message, "input_lengths", "INT32", {2, 1}, Bytes<int32_t>({1, 2}));
  const absl::StatusOr<ValidRequest> valid = Check(message);
  ASSERT_TRUE(valid.ok()) << valid.status();
  EXPECT_THAT(valid->request.tokens, ElementsAre(5, 6, 7));
  EXPECT_THAT(valid->request.spec->lengths, ElementsAre(1, 2));
  EXPECT_THAT(valid->reply.request->lengths, ElementsAre(1, 2));
}

TEST(ValidateTest, TextIsTokenized) {
  ModelInferRequest message;
  AddInput(&message, "text_input", "BYTES", {2, 1}, BytesElement("ab") + BytesElement(""));
  const absl::StatusOr<ValidRequest> valid = Check(message);
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
  EXPECT_THAT(Check(typed)->request.tokens, ElementsAre(256, 'a', 'b'));
}

TEST(ValidateTest, ATextBehindOneThatIsCutKeepsItsTokens) {
  for (const bool left : {false, true}) {
    ModelInferRequest message;
    AddInput(&message, "text_input", "BYTES", {2, 1},
             BytesElement(std::string(100, 'a')) + BytesElement("bc"));
    (*message.mutable_parameters())["truncate"].set_string_param(left ? "left" : "right");
    testing::SetInt(&message, "max_tokens", 1);
    const absl::StatusOr<ValidRequest> valid = Check(message);
    ASSERT_TRUE(valid.ok()) << valid.status();
    std::vector<int32_t> expected(64, 'a');
    expected[0] = 256;  // The tokens of the template stay on either side.
    expected.insert(expected.end(), {256, 'b', 'c'});
    EXPECT_EQ(valid->request.tokens, expected);
    EXPECT_EQ(valid->reply.cut_tokens, 37);
  }
}

TEST(ValidateTest, TextNeedsAModelWithATokenizer) {
  const auto model = FakeModel(FakeConfig());
  const absl::Status status = Validate(TextRequest("a"), kLimits, {.model = model}).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("text_input"));
  ModelInferRequest ids = IdsRequest({1});
  ids.add_outputs()->set_name("text_output");
  EXPECT_FALSE(Validate(ids, kLimits, {.model = model}).ok());
  EXPECT_EQ(Validate(IdsRequest({1}), kLimits, {.model = model})->reply.outputs.size(), 4u);
}

// A valid request, a change that breaks one of its rules, and the error that follows.
struct BadInputRow {
  const char* name;
  ModelInferRequest good;
  std::function<void(ModelInferRequest*)> spoil;
  const char* error;
};
class BadInputTable : public TableTest<BadInputRow> {};

TEST_P(BadInputTable, TheErrorNamesTheProblem) {
  ModelInferRequest message = row().good;
  row().spoil(&message);
  EXPECT_THAT(ErrorOf(message), HasSubstr(row().error));
}

void SetShape(ModelInferRequest* message, int input, const std::vector<int64_t>& shape) {
  message->mutable_inputs(input)->clear_shape();
  for (int64_t size : shape) message->mutable_inputs(input)->add_shape(size);
}

std::vector<BadInputRow> BadInputs() {
  const ModelInferRequest ids = IdsRequest({1, 2, 3});
  const ModelInferRequest text = TextRequest("ab");
  const auto with_lengths = [&](const std::vector<int32_t>& lengths) {
    ModelInferRequest message = ids;
    AddInput(&message, "input_lengths", "INT32", {static_cast<int64_t>(lengths.size()), 1},
             Bytes(lengths));
    return message;
  };
  const auto shape = [](std::vector<int64_t> sizes) {
    return [sizes](ModelInferRequest* m) { SetShape(m, 0, sizes); };
  };
  const auto raw = [](std::string bytes) {
    return [bytes](ModelInferRequest* m) { m->set_raw_input_contents(0, bytes); };
  };
  const auto none = [](ModelInferRequest*) {};
  return {
      {.name = "NoInputs",
       .good = ids,
       .spoil =
           [](auto* m) {
             m->clear_inputs();
             m->clear_raw_input_contents();
           },
       .error = "input_ids is missing"},
      {.name = "BothKindsOfPrompt",
       .good = ids,
       .spoil =
           [](auto* m) {
             AddInput(m, "text_input", "BYTES", {1, 1}, BytesElement("a"));
           },
       .error = "text_input"},
      {.name = "AnUnknownInput",
       .good = ids,
       .spoil = [](auto* m) { m->mutable_inputs(0)->set_name("ids\n"); },
       .error = "\"ids\\n\""},
      {.name = "AnInputGivenTwice",
       .good = ids,
       .spoil =
           [](auto* m) {
             AddInput(m, "input_ids", "INT32", {1, 1}, Bytes<int32_t>({1}));
           },
       .error = "input_ids appears twice"},
      {.name = "LengthsBesideAText",
       .good = text,
       .spoil =
           [](auto* m) {
             AddInput(m, "input_lengths", "INT32", {1, 1}, Bytes<int32_t>({1}));
           },
       .error = "input_lengths"},
      {.name = "IdsOfAnotherDatatype",
       .good = ids,
       .spoil = [](auto* m) { m->mutable_inputs(0)->set_datatype("FP32"); },
       .error = "INT32"},
      {.name = "LengthsOfAnotherDatatype",
       .good = with_lengths({3}),
       .spoil = [](auto* m) { m->mutable_inputs(1)->set_datatype("INT64"); },
       .error = "input_lengths"},
      {.name = "TextOfAnotherDatatype",
       .good = text,
       .spoil = [](auto* m) { m->mutable_inputs(0)->set_datatype("INT32"); },
       .error = "BYTES"},
      {.name = "OneDimension", .good = ids, .spoil = shape({3}), .error = "1 dimensions"},
      {.name = "ThreeDimensions", .good = ids, .spoil = shape({1, 3, 1}), .error = "3 dimensions"},
      {.name = "NoRows", .good = ids, .spoil = shape({0, 3}), .error = "0 rows; expected 1 to 4"},
      {.name = "TooManyRows", .good = ids, .spoil = shape({5, 3}), .error = "5 rows"},
      {.name = "NoColumns", .good = ids, .spoil = shape({1, 0}), .error = "0 columns"},
      {.name = "ARowThatIsTooLong",
       .good = ids,
       .spoil =
           [](auto* m) {
             SetShape(m, 0, {1, 65});
             m->set_raw_input_contents(0, Bytes(std::vector<int32_t>(65, 1)));
           },
       .error = "input_ids [0] has 65 tokens; expected 1 to 64"},
      {.name = "NegativeRows", .good = ids, .spoil = shape({-1, -3}), .error = "-1 rows"},
      {.name = "RowsThatOverflow",
       .good = ids,
       .spoil = shape({INT64_MAX, INT64_MAX}),
       .error = "rows"},
      {.name = "ColumnsThatOverflowToAGoodSize",
       .good = ids,
       .spoil = shape({1, (int64_t{1} << 62) + 3}),
       .error = "columns"},
      {.name = "TheLeastInteger", .good = ids, .spoil = shape({1, INT64_MIN}), .error = "columns"},
      {.name = "TooFewBytes",
       .good = ids,
       .spoil = raw(Bytes<int32_t>({1, 2})),
       .error = "8 raw bytes; its shape [1, 3] needs 12"},
      {.name = "TooManyBytes",
       .good = ids,
       .spoil = raw(Bytes<int32_t>({1, 2, 3, 4})),
       .error = "16 raw bytes"},
      {.name = "NoBytes", .good = ids, .spoil = raw(""), .error = "0 raw bytes"},
      {.name = "MoreRawEntriesThanInputs",
       .good = ids,
       .spoil = [](auto* m) { m->add_raw_input_contents("x"); },
       .error = "2 entries for 1 inputs"},
      {.name = "BothRawAndTypedContents",
       .good = ids,
       .spoil = [](auto* m) { m->mutable_inputs(0)->mutable_contents()->add_int_contents(1); },
       .error = "beside raw_input_contents"},
      {.name = "NeitherRawNorTypedContents",
       .good = ids,
       .spoil = [](auto* m) { m->clear_raw_input_contents(); },
       .error = "0 int_contents"},
      {.name = "ParametersOfATensor",
       .good = ids,
       .spoil =
           [](auto* m) { (*m->mutable_inputs(0)->mutable_parameters())["x"].set_bool_param(true); },
       .error = "no parameters"},
      {.name = "ANegativeId",
       .good = ids,
       .spoil = raw(Bytes<int32_t>({1, -1, 3})),
       .error = "[0, 1] is -1; expected 0 to 257"},
      {.name = "AnIdBeyondTheVocabulary",
       .good = ids,
       .spoil = raw(Bytes<int32_t>({1, 2, 258})),
       .error = "[0, 2] is 258"},
      {.name = "ALengthOfZero",
       .good = with_lengths({0}),
       .spoil = none,
       .error = "input_lengths [0] is 0; expected 1 to 3"},
      {.name = "ALengthBeyondTheColumns",
       .good = with_lengths({4}),
       .spoil = none,
       .error = "input_lengths"},
      {.name = "LengthsForOtherRows",
       .good = with_lengths({1, 1}),
       .spoil = none,
       .error = "2 rows"},
      {.name = "TextOfTwoColumns", .good = text, .spoil = shape({1, 2}), .error = "2 columns"},
      {.name = "TextWithoutItsLength", .good = text, .spoil = raw("abc"), .error = "too few"},
      {.name = "TextThatIsCut",
       .good = text,
       .spoil = raw(Bytes<uint32_t>({3}) + "ab"),
       .error = "within element 0"},
      {.name = "ATextLengthThatOverflows",
       .good = text,
       .spoil = raw(Bytes<uint32_t>({UINT32_MAX}) + "ab"),
       .error = "within element 0"},
      {.name = "BytesBehindTheText",
       .good = text,
       .spoil = raw(BytesElement("ab") + "c"),
       .error = "1 bytes after"},
      {.name = "ATextOfTooManyTokens",
       .good = text,
       .spoil = raw(BytesElement(std::string(64, 'x'))),
       .error = "65 tokens; expected 1 to 64"},
      {.name = "AHugeText",
       .good = text,
       .spoil = raw(BytesElement(std::string(64 * 256 + 1, 'x'))),
       .error = "bytes; the limit is"},
      {.name = "ALongId",
       .good = ids,
       .spoil = [](auto* m) { m->set_id(std::string(257, 'i')); },
       .error = "id has 257 bytes"},
  };
}

SLUICE_TABLE(BadInputTable, BadInputs());

TEST(ValidateTest, TypedContentsOfAnotherDatatypeAreRefused) {
  ModelInferRequest message = IdsRequest({1});
  message.clear_raw_input_contents();
  message.mutable_inputs(0)->mutable_contents()->add_int_contents(1);
  EXPECT_TRUE(Check(message).ok());
  message.mutable_inputs(0)->mutable_contents()->add_fp32_contents(1);
  EXPECT_THAT(ErrorOf(message), HasSubstr("other datatypes"));
}

TEST(ValidateTest, OutputsAreReturnedInTheOrderRequested) {
  ModelInferRequest message = IdsRequest({1});
  for (const char* name : {"logits", "output_ids", "xsa_cos_sim", "prompt_logprobs"}) {
    message.add_outputs()->set_name(name);
  }
  const absl::StatusOr<ValidRequest> valid = Check(message);
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
  EXPECT_THAT(ErrorOf(parameters), HasSubstr("no parameters"));
}

TEST(ValidateTest, DiagnosticsNeedAModelWithXsa) {
  ModelConfig config = FakeConfig();
  for (const char* name : {"xsa_cos_sim", "xsa_proj_frac"}) {
    ModelInferRequest message = IdsRequest({1});
    message.add_outputs()->set_name(name);
    EXPECT_TRUE(Validate(message, kLimits, {.model = FakeModel(config)}).ok());
    config.xsa.layers = {false, false};
    const absl::Status status = Validate(message, kLimits, {.model = FakeModel(config)}).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr("is unknown"));
    config.xsa.layers = {false, true};
  }
}

TEST(ValidateTest, TopIdsNeedNumTopLogprobs) {
  ModelInferRequest message = IdsRequest({1});
  message.add_outputs()->set_name("top_ids");
  EXPECT_THAT(ErrorOf(message), HasSubstr("num_top_logprobs"));
  SetInt(&message, "num_top_logprobs", 3);
  const absl::StatusOr<ValidRequest> named = Check(message);
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ(named->request.spec->num_top, 3);
  EXPECT_EQ(named->request.outputs, kOutputTopCandidates | kOutputTokens);

  message.clear_outputs();
  const absl::StatusOr<ValidRequest> defaults = Check(message);
  ASSERT_TRUE(defaults.ok());
  EXPECT_THAT(defaults->reply.outputs,
              ::testing::IsSupersetOf({Output::kTopIds, Output::kTopLogprobs}));

  message.add_outputs()->set_name("output_ids");
  EXPECT_EQ(Check(message)->request.spec->num_top, 0) << "nobody would see them";
}

TEST(ValidateTest, PromptAndGeneratedTokensShareThePositions) {
  ModelInferRequest message = IdsRequest(std::vector<int32_t>(60, 1));
  SetInt(&message, "max_tokens", 5);
  EXPECT_TRUE(Check(message).ok());
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
  EXPECT_TRUE(Check(message).ok());
  SetInt(&message, "max_tokens", 8);  // 66048 > 65536
  EXPECT_THAT(ErrorOf(message), HasSubstr("max_message_bytes"));
}

TEST(ValidateTest, SamplingParametersReachTheEngine) {
  ModelInferRequest message = IdsRequest({1});
  auto& parameters = *message.mutable_parameters();
  parameters["temperature"].set_double_param(0.5);
  parameters["top_k"].set_int64_param(7);
  parameters["top_p"].set_string_param("0.75");
  parameters["min_p"].set_double_param(0.125);
  parameters["seed"].set_uint64_param(UINT64_MAX);
  parameters["priority"].set_int64_param(1);
  const absl::StatusOr<ValidRequest> valid = Check(message, {.fresh_seed = 9});
  ASSERT_TRUE(valid.ok()) << valid.status();
  const kernels::SampleParams& sampling = valid->request.spec->sampling;
  EXPECT_EQ(sampling.temperature, 0.5f);
  EXPECT_EQ(sampling.top_k, 7);
  EXPECT_EQ(sampling.top_p, 0.75f);
  EXPECT_EQ(sampling.min_p, 0.125f);
  EXPECT_EQ(sampling.seed, UINT64_MAX);
  EXPECT_EQ(valid->request.spec->priority, 1);
  EXPECT_FALSE(valid->reply.drawn_seed.has_value());
}

TEST(ValidateTest, EditsAndStopsReachTheEngineAndTheReply) {
  ModelInferRequest message = IdsRequest({1});
  SetInt(&message, "max_tokens", 9);
  SetInt(&message, "min_tokens", 3);
  auto& parameters = *message.mutable_parameters();
  parameters["stop"].set_string_param("[\"x\", \"yz\"]");
  parameters["stop_token_ids"].set_string_param("[5]");
  parameters["logit_bias"].set_string_param("{\"7\": null}");
  parameters["ignore_eos"].set_bool_param(true);
  parameters["triton_enable_empty_final_response"].set_bool_param(true);
  const absl::StatusOr<ValidRequest> valid = Check(message);
  ASSERT_TRUE(valid.ok()) << valid.status();
  const StopRules& stop = valid->request.spec->stop;
  EXPECT_THAT(stop.texts, ElementsAre("x", "yz"));
  EXPECT_THAT(stop.ids, ElementsAre(5));
  EXPECT_TRUE(stop.ignore_eos);
  EXPECT_EQ(stop.min_tokens, 3);
  ASSERT_EQ(valid->request.spec->edits.bias.size(), 1u);
  EXPECT_EQ(valid->request.spec->edits.bias[0].token, 7);
  // The reply cuts its text by the same stop rules.
  EXPECT_EQ(valid->reply.request, valid->request.spec) << "both share one";
  EXPECT_EQ(valid->request.spec->max_tokens, 9);
  EXPECT_TRUE(valid->request.spec->empty_final_response);
}

TEST(ValidateTest, StopTextsNeedATokenizer) {
  ModelInferRequest message = IdsRequest({1});
  (*message.mutable_parameters())["stop"].set_string_param("x");
  EXPECT_TRUE(Check(message).ok());
  const absl::Status status =
      Validate(message, kLimits, {.model = FakeModel(FakeConfig())}).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("parameter stop"));
}

TEST(ValidateTest, ASeedIsDrawnAndReturnedIfOneIsNeeded) {
  ModelInferRequest message = IdsRequest({1});
  EXPECT_FALSE(Check(message, {.fresh_seed = 9})->reply.drawn_seed.has_value()) << "greedy";
  (*message.mutable_parameters())["temperature"].set_double_param(1);
  const absl::StatusOr<ValidRequest> valid = Check(message, {.fresh_seed = 9});
  EXPECT_EQ(valid->request.spec->sampling.seed, 9u);
  EXPECT_EQ(valid->reply.drawn_seed, 9);
}

TEST(ValidateTest, TheEarlierDeadlineApplies) {
  using std::chrono::microseconds;
  const MonoTime now = MonoTime(std::chrono::hours(1));
  ModelInferRequest message = IdsRequest({1});
  SetInt(&message, "timeout", 500);
  const auto deadline = [&](MonoTime rpc) {
    return Check(message, {.received = now, .rpc_deadline = rpc})->request.deadline;
  };
  EXPECT_EQ(deadline(MonoTime::max()), now + microseconds(500));
  EXPECT_EQ(deadline(now + microseconds(400)), now + microseconds(400));
  EXPECT_EQ(deadline(now + microseconds(600)), now + microseconds(500));
  SetInt(&message, "timeout", 0);
  EXPECT_EQ(deadline(now + microseconds(600)), now + microseconds(600));
}

// A tokenizer whose longest token has 1000 bytes.
class LongTokenTokenizer final : public Tokenizer {
 public:
  absl::StatusOr<std::vector<int32_t>> EncodeBare(std::string_view, int64_t) const override {
    return std::vector<int32_t>{1};
  }
  int64_t longest_token_bytes() const override { return 1000; }
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

TEST(CallerPriorityTest, AMoreUrgentLevelIsDeniedAndTheDefaultIsWithinTheLimit) {
  const std::shared_ptr<const Model> model = testing::TextModel();
  const auto priority_of = [&](int most_urgent, int asked) -> int {
    inference::ModelInferRequest message = testing::IdsRequest({1});
    if (asked > 0) testing::SetInt(&message, "priority", asked);
    const auto valid = Validate(message, {}, {.max_priority = most_urgent, .model = model});
    if (valid.ok()) return valid->request.spec->priority;
    EXPECT_EQ(valid.status().code(), absl::StatusCode::kPermissionDenied);
    EXPECT_THAT(std::string(valid.status().message()), HasSubstr("priority is"));
    return -1;
  };
  EXPECT_EQ(priority_of(1, 1), 1);
  EXPECT_EQ(priority_of(2, 1), -1);
  EXPECT_EQ(priority_of(2, 2), 2);
  EXPECT_EQ(priority_of(3, 2), -1);
  EXPECT_EQ(priority_of(3, 3), 3);
  EXPECT_EQ(priority_of(1, 0), 2);
  EXPECT_EQ(priority_of(3, 0), 3);
}

}  // namespace
}  // namespace sluice
