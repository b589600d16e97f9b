// Tests how pairs of texts become rows: framed by the tokenizer's template, with types, and cut.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "base/json_reader.h"
#include "engine/model/pair_frame.h"
#include "engine/model/tokenizer/hugging_face.h"
#include "server/protocol/request/validate.h"
#include "tests/server/protocol/messages.h"
#include "tests/server/protocol/request/validated.h"
#include "tests/support/fake_backend.h"

namespace sluice {
namespace {

using inference::ModelInferRequest;
using nlohmann::json;
using testing::AddInput;
using testing::Bytes;
using testing::BytesElement;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

json ReadGolden(const std::string& name) {
  std::ifstream file(std::string(SLUICE_SOURCE_DIR) + "/tests/goldens/" + name);
  EXPECT_TRUE(file.is_open()) << name;
  std::ostringstream text;
  text << file.rdbuf();
  return json::parse(text.str());
}

// Returns an encoder with the tokenizer of that name, whose post processor may be replaced.
std::shared_ptr<Model> Encoder(const std::string& tokenizer, const json& post_processor = nullptr) {
  auto model = std::make_shared<Model>();
  model->name = "text";
  model->config = FakeConfig();
  model->config.causal = model->config.has_lm_head = false;
  model->config.vocab_size = 1000;
  model->config.max_positions = 1000;
  model->config.token_types = 3;
  json document = ReadGolden("tokenizers/" + tokenizer + ".json");
  if (!post_processor.is_null()) document["post_processor"] = post_processor;
  auto parsed = tokenize::ParseHuggingFace(document.dump(), {});
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  if (parsed.ok()) model->tokenizer = *std::move(parsed);
  return model;
}

ModelInferRequest Texts(const std::vector<std::string>& first,
                        const std::vector<std::string>& second) {
  ModelInferRequest message;
  message.set_model_name("text");
  const auto add = [&](const std::string& name, const std::vector<std::string>& texts) {
    std::string raw;
    for (const std::string& text : texts) raw += BytesElement(text);
    AddInput(&message, name, "BYTES", {std::ssize(texts), 1}, raw);
  };
  add("text_input", first);
  if (!second.empty()) add("text_pair_input", second);
  return message;
}

absl::StatusOr<ValidRequest> Check(const std::shared_ptr<const Model>& model,
                                   const ModelInferRequest& message) {
  CallContext call;
  call.model = model;
  return Validate(message, {.max_rows = 64}, call);
}

// Returns the request, which must be valid.
Request Valid(const std::shared_ptr<const Model>& model, const ModelInferRequest& message) {
  absl::StatusOr<ValidRequest> valid = Check(model, message);
  EXPECT_TRUE(valid.ok()) << valid.status();
  return valid.ok() ? std::move(valid->request) : Request();
}

std::string ErrorOf(const std::shared_ptr<const Model>& model, const ModelInferRequest& message) {
  return testing::InvalidArgument(Check(model, message).status());
}

std::vector<std::string> TokenizersWith(bool pairs) {
  static const json* const golden = new json(ReadGolden("pairs.json"));
  std::vector<std::string> names;
  for (const auto& [name, expected] : (*golden)["tokenizers"].items()) {
    if (expected["pairs"].is_null() != pairs) names.push_back(name);
  }
  return names;
}

class PairGoldenTest : public ::testing::TestWithParam<std::string> {};

TEST_P(PairGoldenTest, PairsGetTheTemplateTypesAndCutsOfTheOriginal) {
  const json golden = ReadGolden("pairs.json");
  const json& expected = golden["tokenizers"][GetParam()];
  const json& replaced = expected["post_processor"];
  const auto model = Encoder(replaced.is_null() ? GetParam() : "bert_uncased", replaced);
  int cut = 0;
  for (size_t i = 0; i < golden["texts"].size(); ++i) {
    const json& pair = golden["texts"][i];
    for (const json& row : expected["pairs"][i]) {
      SCOPED_TRACE(row.dump() + " of " + pair.dump());
      if (row["ids"].empty()) continue;  // a row needs at least one token
      ModelInferRequest message = Texts({pair[0]}, {pair[1]});
      const int64_t most = row["most"];
      model->config.max_positions = most == 0 ? 1000 : most;
      if (most > 0) {
        (*message.mutable_parameters())["truncate"].set_string_param(row["side"]);
        ++cut;
      }
      const Request request = Valid(model, message);
      EXPECT_EQ(request.tokens, row["ids"].get<std::vector<int32_t>>());
      std::vector<int32_t> types = request.types;
      types.resize(request.tokens.size());  // without types all are 0
      EXPECT_EQ(types, row["types"].get<std::vector<int32_t>>());
    }
  }
  EXPECT_GT(cut, 100);
}

class SpecialTokensTest : public ::testing::TestWithParam<std::string> {};

TEST_P(SpecialTokensTest, ATextMayBeEncodedWithoutThem) {
  const auto model = Encoder(GetParam());
  ModelInferRequest message = Texts({"hello world, hello"}, {});
  auto& parameters = *message.mutable_parameters();
  const std::vector<int32_t> around = Valid(model, message).tokens;
  parameters["add_special_tokens"].set_bool_param(false);
  const std::vector<int32_t> bare = *model->tokenizer->EncodeBare("hello world, hello", 1000);
  ASSERT_GT(bare.size(), 3u);
  EXPECT_EQ(Valid(model, message).tokens, bare);
  EXPECT_EQ(around.size() - bare.size(), model->tokenizer->templates().single.specials());
  parameters["truncate"].set_string_param("left");
  model->config.max_positions = 3;
  EXPECT_EQ(Valid(model, message).tokens, std::vector<int32_t>(bare.end() - 3, bare.end()));
}

INSTANTIATE_TEST_SUITE_P(All, SpecialTokensTest,
                         ::testing::Values("bert_uncased", "gpt2", "llama2", "roberta", "xlm"),
                         [](const auto& param) { return param.param; });

TEST(SpecialTokensTest, PairsNeedThem) {
  ModelInferRequest message = Texts({"a"}, {"b"});
  (*message.mutable_parameters())["add_special_tokens"].set_bool_param(false);
  EXPECT_THAT(ErrorOf(Encoder("bert_uncased"), message),
              HasSubstr("parameter add_special_tokens is false, which needs text_input"));
}

TEST(TextInputTest, AModelWithoutATokenizerNamesTheFileItNeeds) {
  const auto model = Encoder("gpt2");
  model->tokenizer = nullptr;
  EXPECT_THAT(ErrorOf(model, Texts({"a"}, {})), HasSubstr("needs a tokenizer.json"));
}

TEST(StopTextsTest, ASpecialTokenEndsRowsByItsId) {
  const auto model = Encoder("llama2");
  model->config.causal = model->config.has_lm_head = true;
  ModelInferRequest message = Texts({"a"}, {});
  auto& parameters = *message.mutable_parameters();
  parameters["stop"].set_string_param(R"(["</s>", "x", "<s>", "</s>"])");
  parameters["stop_token_ids"].set_string_param("[2, 7]");
  EXPECT_THAT(Valid(model, message).spec->stop.ids, ElementsAre(1, 2, 7));
  parameters["max_tokens"].set_int64_param(2);
  parameters["min_tokens"].set_int64_param(1);
  parameters["allowed_token_ids"].set_string_param("[1]");
  EXPECT_THAT(ErrorOf(model, message), HasSubstr("allowed_token_ids: leaves no token to draw"));
}

INSTANTIATE_TEST_SUITE_P(All, PairGoldenTest, ::testing::ValuesIn(TokenizersWith(true)),
                         [](const auto& param) { return param.param; });

TEST(TextRowsTest, ATokenizerWithoutATemplateOfPairsRefusesThem) {
  for (const std::string& name : TokenizersWith(false)) {
    EXPECT_THAT(ErrorOf(Encoder(name), Texts({"a"}, {"b"})),
                HasSubstr("text_pair_input is refused: the model's tokenizer has no template"));
  }
  EXPECT_THAT(ErrorOf(testing::TextModel(), Texts({"a"}, {"b"})), HasSubstr("no template"));
}

TEST(TextRowsTest, OneTextIsPairedWithSeveralAndEachPairIsCutSeparately) {
  const auto model = Encoder("bert_uncased");
  const std::string query = "the server answers queues grow";
  const std::vector<std::string> documents = {"a", "the end of the text that it has", ""};
  model->config.max_positions = 12;
  ModelInferRequest together = Texts({query}, documents);
  (*together.mutable_parameters())["truncate"].set_string_param("right");
  const Request all = Valid(model, together);
  std::vector<int32_t> tokens, types;
  for (const std::string& document : documents) {
    ModelInferRequest alone = Texts({query}, {document});
    *alone.mutable_parameters() = together.parameters();
    const Request one = Valid(model, alone);
    tokens.insert(tokens.end(), one.tokens.begin(), one.tokens.end());
    types.insert(types.end(), one.types.begin(), one.types.end());
  }
  EXPECT_EQ(all.tokens, tokens);
  EXPECT_EQ(all.types, types);
  EXPECT_THAT(ErrorOf(model, Texts({"a", "b"}, {"c"})), HasSubstr("text_pair_input"));
}

TEST(TextRowsTest, ACutTextKeepsTheTemplateTokensAroundIt) {
  const auto model = Encoder("bert_uncased");
  const std::string text = "the server answers queues grow";
  const std::vector<int32_t> whole = Valid(model, Texts({text}, {})).tokens;
  model->config.max_positions = 4;
  for (const std::string side : {"left", "right"}) {
    ModelInferRequest message = Texts({text}, {});
    (*message.mutable_parameters())["truncate"].set_string_param(side);
    const size_t first = side == "right" ? 1 : whole.size() - 3;
    EXPECT_THAT(Valid(model, message).tokens,
                ElementsAre(whole.front(), whole[first], whole[first + 1], whole.back()));
  }
  model->config.max_positions = 1;
  ModelInferRequest message = Texts({text}, {});
  (*message.mutable_parameters())["truncate"].set_string_param("right");
  EXPECT_THAT(ErrorOf(model, message), HasSubstr("cannot be cut to 1 tokens"));
  EXPECT_THAT(ErrorOf(model, Texts({text}, {text})), HasSubstr("has more than 1 tokens"));
  model->config.max_positions = static_cast<int64_t>(whole.size());
  EXPECT_THAT(ErrorOf(model, Texts({text}, {text})), HasSubstr("tokens with its pair"));
}

TEST(TextRowsTest, OfATextOfTooManyBytesTheFirstOnesAreReadIfItsEndIsCut) {
  const auto model = Encoder("bert_uncased");
  model->config.max_positions = 1 << 20;
  const auto limited = Encoder("bert_uncased");
  limited->config.max_positions = 8;
  const int64_t limit = 8 * std::max<int64_t>(256, limited->tokenizer->longest_token_bytes());
  const auto cut = [](const std::string& text, const std::string& side) {
    ModelInferRequest message = Texts({"a", text}, {});
    (*message.mutable_parameters())["truncate"].set_string_param(side);
    return message;
  };
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const char* const words[] = {"the",          "server",     "answers", "gr\u00f6\u00dfe",
                                 "\u4f60\u597d", "\U0001f600", ","};
    std::string text;
    while (std::ssize(text) < limit + static_cast<int64_t>(seed)) {
      text += words[random() % std::size(words)];
      text += random() % 4 == 0 ? "" : " ";
    }
    const Request whole = Valid(model, Texts({"a", text}, {}));
    const Request row = Valid(limited, cut(text, "right"));
    ASSERT_EQ(row.spec->lengths[1], 8);
    const auto expected = whole.tokens.begin() + whole.spec->lengths[0];
    const auto found = row.tokens.begin() + row.spec->lengths[0];
    EXPECT_TRUE(std::equal(found, found + 7, expected));
    EXPECT_EQ(row.tokens.back(), whole.tokens.back());
    EXPECT_THAT(ErrorOf(limited, cut(text, "left")),
                HasSubstr("text_input [1] has " + std::to_string(text.size()) +
                          " bytes; the limit is " + std::to_string(limit)));
    EXPECT_THAT(ErrorOf(limited, cut(text, "left")), HasSubstr("set truncate to right"));
  }
  // Tokens near the end of the bytes that are read may depend on the others.
  EXPECT_THAT(ErrorOf(limited, cut(std::string(limit, ' ') + "the server", "right")),
              HasSubstr("bytes have only 0 tokens"));
}

// A window has 8 tokens, including two template tokens around its part of the text.
TEST(TextRowsTest, WindowsOverlapAndTheLastOneHasTheRemainingTokens) {
  const std::shared_ptr<Model> model = Encoder("bert_uncased");
  model->config.serving.classifier.labels = 2;
  ModelInferRequest message = Texts({"a b c d e f g h i j k", "a"}, {});
  const Request whole = Valid(model, message);
  model->config.max_positions = 8;
  (*message.mutable_parameters())["window_overlap"].set_int64_param(2);
  const Request windows = Valid(model, message);

  const int32_t length = whole.spec->lengths[0] - 2;
  ASSERT_GT(length, 6);
  std::vector<int32_t> lengths, tokens;
  for (int32_t begin = 0; begin == 0 || begin + 2 < length; begin += 4) {
    const int32_t end = std::min(begin + 6, length);
    lengths.push_back(end - begin + 2);
    tokens.push_back(whole.tokens[0]);
    tokens.insert(tokens.end(), whole.tokens.begin() + 1 + begin, whole.tokens.begin() + 1 + end);
    tokens.push_back(whole.tokens[length + 1]);
  }
  lengths.push_back(whole.spec->lengths[1]);
  tokens.insert(tokens.end(), whole.tokens.begin() + length + 2, whole.tokens.end());
  EXPECT_EQ(windows.spec->lengths, lengths);
  EXPECT_EQ(windows.tokens, tokens);
}

TEST(TextRowsTest, ANamedPromptIsPutBeforeTheText) {
  const std::shared_ptr<Model> model = Encoder("bert_uncased");
  model->config.serving.prompts = {{"query", "b c "}};
  ModelInferRequest message = Texts({"a"}, {});
  (*message.mutable_parameters())["prompt_name"].set_string_param("query");
  EXPECT_EQ(Valid(model, message).tokens, Valid(model, Texts({"b c a"}, {})).tokens);
  (*message.mutable_parameters())["prompt_name"].set_string_param("title");
  EXPECT_THAT(ErrorOf(model, message), HasSubstr("the model has no prompt \"title\""));
}

// Returns a reranker whose frame is "Q<query>|D<document>=", with an instruction before it.
std::shared_ptr<Model> Reranker() {
  const auto model = std::const_pointer_cast<Model>(testing::TextModel());
  const json document = json::parse(R"({
      "frame": [{"text": "Q"}, {"input": "query"}, {"text": "|D"}, {"input": "document"},
                {"text": "="}],
      "frame_with_instruction": [{"input": "instruction"}, {"text": ":Q"}, {"input": "query"},
                                 {"text": "|D"}, {"input": "document"}, {"text": "="}]})");
  absl::Status status;
  ObjectReader root(document, "", &status);
  model->config.serving.frame = PairFrame::Read(root);
  EXPECT_TRUE(status.ok()) << status;
  return model;
}

// Returns the rows as texts. Tokens are bytes.
std::vector<std::string> RowsOf(const std::shared_ptr<const Model>& model,
                                const ModelInferRequest& message) {
  const Request request = Valid(model, message);
  std::vector<std::string> rows;
  auto next = request.tokens.begin();
  for (const int32_t length : request.spec->lengths) {
    rows.emplace_back(next, next + length);
    next += length;
  }
  return rows;
}

TEST(FramedRowsTest, APairIsPutIntoTheFrame) {
  const auto model = Reranker();
  EXPECT_THAT(RowsOf(model, Texts({"a"}, {"b", "", "c d"})),
              ElementsAre("Qa|Db=", "Qa|D=", "Qa|Dc d="));
  EXPECT_THAT(RowsOf(model, Texts({"a", "x"}, {"b", "c"})), ElementsAre("Qa|Db=", "Qx|Dc="));
  EXPECT_THAT(RowsOf(model, Texts({"a"}, {})), ElementsAre(HasSubstr("a")));
}

TEST(FramedRowsTest, TheInstructionComesFromItsParameterOrFromThePrompt) {
  const auto model = Reranker();
  model->config.serving.prompts = {{"web", "find"}};
  ModelInferRequest message = Texts({"a"}, {"b"});
  (*message.mutable_parameters())["prompt_name"].set_string_param("web");
  EXPECT_THAT(RowsOf(model, message), ElementsAre("find:Qa|Db="));
  (*message.mutable_parameters())["instruction"].set_string_param("i");
  EXPECT_THAT(ErrorOf(model, message), HasSubstr("cannot be combined with prompt_name"));
  message.mutable_parameters()->erase("prompt_name");
  EXPECT_THAT(RowsOf(model, message), ElementsAre("i:Qa|Db="));
  model->config.serving.default_prompt = "web";
  EXPECT_THAT(RowsOf(model, Texts({"a"}, {"b"})), ElementsAre("find:Qa|Db="));
  (*message.mutable_parameters())["instruction"].set_string_param("");
  EXPECT_THAT(RowsOf(model, message), ElementsAre("Qa|Db="));
}

TEST(FramedRowsTest, ACutRowKeepsTheEndOfTheFrame) {
  const auto model = Reranker();
  model->config.max_positions = 8;
  ModelInferRequest message = Texts({"abc"}, {"01", "defghij", "d"});
  EXPECT_THAT(ErrorOf(model, message),
              HasSubstr("text_pair_input [0] has 9 bytes; the limit is 8"));
  (*message.mutable_parameters())["truncate"].set_string_param("right");
  EXPECT_THAT(RowsOf(model, message), ElementsAre("Qabc|D0=", "Qabc|Dd=", "Qabc|Dd="));
  (*message.mutable_parameters())["truncate"].set_string_param("left");
  EXPECT_THAT(RowsOf(model, message), ElementsAre("abc|D01=", "defghij=", "Qabc|Dd="));
}

TEST(FramedRowsTest, TheQueryCountsForEveryRowBeforeTextsAreEncoded) {
  const auto model = Reranker();
  int64_t bytes = 0;
  CallContext call;
  call.model = model;
  call.before_encoding = [&bytes](int64_t tokens) {
    bytes = tokens;
    return absl::OkStatus();
  };
  EXPECT_TRUE(Validate(Texts({"abcd"}, {"x", "y", "z"}), {.max_rows = 64}, call).ok());
  EXPECT_EQ(bytes, 15);
}

TEST(FramedRowsTest, AnInstructionNeedsAFrameWithAPlaceForIt) {
  ModelInferRequest message = Texts({"a"}, {"b"});
  (*message.mutable_parameters())["instruction"].set_string_param("i");
  EXPECT_THAT(ErrorOf(Encoder("bert_uncased"), message),
              HasSubstr("instruction is refused: the model has no pair_frame.json"));
  const auto model = Reranker();
  const json document = {{"frame", {{{"input", "query"}}, {{"input", "document"}}}}};
  absl::Status status;
  ObjectReader root(document, "", &status);
  model->config.serving.frame = PairFrame::Read(root);
  EXPECT_THAT(ErrorOf(model, message), HasSubstr("pair_frame.json has no frame_with_instruction"));
  model->config.serving.prompts = {{"web", "find"}};
  model->config.serving.default_prompt = "web";
  EXPECT_THAT(RowsOf(model, Texts({"a"}, {"b"})), ElementsAre("ab"));
}

TEST(TextRowsTest, TemplateTypesMustExistInTheModel) {
  const auto model = Encoder("bert_uncased");
  for (const int types : {0, 1}) {
    model->config.token_types = types;
    EXPECT_THAT(Valid(model, Texts({"a"}, {"b"})).types, IsEmpty());
  }
  const auto explicit_types =
      Encoder("bert_uncased", ReadGolden("pairs.json")["tokenizers"]["explicit"]["post_processor"]);
  explicit_types->config.token_types = 2;
  EXPECT_THAT(ErrorOf(explicit_types, Texts({"a"}, {"b"})),
              HasSubstr("text_pair_input is refused: the tokenizer's template has type 2; the "
                        "model has types 0 to 1"));
}

ModelInferRequest Ids(const std::vector<int32_t>& types, const std::vector<int64_t>& shape) {
  ModelInferRequest message;
  AddInput(&message, "input_ids", "INT32", {2, 3}, Bytes<int32_t>({5, 6, 7, 8, 9, 9}));
  AddInput(&message, "input_lengths", "INT32", {2, 1}, Bytes<int32_t>({3, 2}));
  AddInput(&message, "token_type_ids", "INT32", shape, Bytes(types));
  return message;
}

TEST(TokenTypesTest, MatchTheTokensThatRemain) {
  const auto model = Encoder("bert_uncased");
  EXPECT_THAT(Valid(model, Ids({0, 1, 2, 2, 0, 99}, {2, 3})).types, ElementsAre(0, 1, 2, 2, 0));
  EXPECT_THAT(Valid(model, Ids({0, 0, 0, 0, 0, 7}, {2, 3})).types, IsEmpty());
  model->config.max_positions = 2;
  ModelInferRequest cut = Ids({0, 1, 2, 2, 0, 99}, {2, 3});
  (*cut.mutable_parameters())["truncate"].set_string_param("left");
  EXPECT_THAT(Valid(model, cut).types, ElementsAre(1, 2, 2, 0));
}

TEST(TokenTypesTest, AreCheckedAgainstTheModelAndTheIds) {
  const auto model = Encoder("bert_uncased");
  EXPECT_THAT(ErrorOf(model, Ids({0, 1, 3, 2, 0, 0}, {2, 3})),
              HasSubstr("token_type_ids [0, 2] is 3; expected 0 to 2"));
  EXPECT_THAT(ErrorOf(model, Ids({0, 1, 2, -1, 0, 0}, {2, 3})),
              HasSubstr("token_type_ids [1, 0] is -1; expected 0 to 2"));
  EXPECT_THAT(ErrorOf(model, Ids({0, 1}, {2, 1})), HasSubstr("token_type_ids"));
  ModelInferRequest texts = Texts({"a"}, {});
  AddInput(&texts, "token_type_ids", "INT32", {1, 1}, Bytes<int32_t>({1}));
  EXPECT_THAT(ErrorOf(model, texts),
              HasSubstr("input token_type_ids cannot be combined with text_input"));
  model->config.token_types = 0;
  EXPECT_THAT(ErrorOf(model, Ids({0, 0, 0, 0, 0, 0}, {2, 3})), HasSubstr("token_type_ids"));
}

}  // namespace
}  // namespace sluice
