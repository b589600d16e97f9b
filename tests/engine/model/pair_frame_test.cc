// Tests how pair_frame.json and the module LogitScore are read and refused, and the text and the
// tail of a frame. tests/e2e/test_rerankers.py compares the scores with sentence-transformers.
#include "engine/model/pair_frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/json_reader.h"
#include "engine/model/model.h"
#include "engine/model/tokenizer/tokenizer.h"
#include "tests/support/table.h"
#include "tests/support/temporary_directory.h"

namespace sluice {
namespace {

using nlohmann::json;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The files of a directory, by their names.
using Files = std::map<std::string, json>;

json Text(const char* text) { return {{"text", text}}; }
json Input(const char* name) { return {{"input", name}}; }

Files Good() {
  return {{"config.json",
           {{"architectures", {"Qwen3ForCausalLM"}},
            {"vocab_size", 300},
            {"hidden_size", 24},
            {"num_hidden_layers", 1},
            {"num_attention_heads", 3},
            {"num_key_value_heads", 3},
            {"head_dim", 8},
            {"intermediate_size", 40},
            {"max_position_embeddings", 20}}},
          {"pair_frame.json",
           {{"frame", {Text("Q"), Input("query"), Text("D"), Input("document"), Text("=")}},
            {"frame_with_instruction",
             {Input("instruction"), Text("Q"), Input("query"), Input("document")}},
            {"true_token_id", 5},
            {"false_token_id", 7}}}};
}

// Returns the same model in the files of sentence-transformers.
Files WithModules() {
  Files files = Good();
  files["pair_frame.json"].erase("true_token_id");
  files["pair_frame.json"].erase("false_token_id");
  const json message = {{"method", "forward"}, {"method_output_name", "logits"}};
  json chat = message;
  chat["format"] = "flat";
  files["modules.json"] = {
      {{"path", ""}, {"type", "sentence_transformers.base.modules.transformer.Transformer"}},
      {{"path", "1_LogitScore"},
       {"type", "sentence_transformers.cross_encoder.modules.logit_score.LogitScore"}}};
  files["1_LogitScore/config.json"] = {{"true_token_id", 5}, {"false_token_id", 7}};
  files["config_sentence_transformers.json"] = {
      {"model_type", "CrossEncoder"}, {"activation_fn", "torch.nn.modules.linear.Identity"}};
  files["sentence_bert_config.json"] = {
      {"transformer_task", "text-generation"},
      {"modality_config", {{"text", message}, {"message", chat}}},
      {"module_output_name", "causal_logits"},
      {"processing_kwargs", {{"chat_template", {{"add_generation_prompt", true}}}}}};
  return files;
}

absl::StatusOr<ModelConfig> Read(const Files& files) {
  TemporaryDirectory folder;
  for (const auto& [name, content] : files) {
    std::filesystem::create_directories(std::filesystem::path(folder.File(name)).parent_path());
    std::ofstream(folder.File(name)) << content.dump();
  }
  return ReadModelConfig(*Directory::Open(folder.File("")));
}

PairFrame FrameOf(const json& document) {
  absl::Status status;
  ObjectReader root(document, "", &status);
  PairFrame frame = PairFrame::Read(root);
  EXPECT_TRUE(status.ok()) << status;
  return frame;
}

TEST(PairFrameTest, AFolderWithoutModulesHasAScoreFromLogits) {
  const auto config = Read(Good());
  ASSERT_TRUE(config.ok()) << config.status();
  const ClassifierConfig& classifier = config->serving.classifier;
  EXPECT_EQ(classifier.labels, 1);
  EXPECT_EQ(classifier.pooling, Pooling::kLast);
  EXPECT_EQ(classifier.scale, ScoreScale::kSigmoid);
  ASSERT_TRUE(classifier.logits && config->serving.frame);
  EXPECT_EQ(classifier.logits->true_token, 5);
  EXPECT_EQ(classifier.logits->false_token, 7);
}

TEST(PairFrameTest, TheModulesOfSentenceTransformersHaveTheSameScore) {
  const auto config = Read(WithModules());
  ASSERT_TRUE(config.ok()) << config.status();
  const ClassifierConfig& classifier = config->serving.classifier;
  EXPECT_EQ(classifier.scale, ScoreScale::kRaw);
  ASSERT_TRUE(classifier.logits && config->serving.frame);
  EXPECT_EQ(classifier.logits->true_token, 5);
  EXPECT_EQ(classifier.logits->false_token, 7);
}

TEST(PairFrameTest, AScoreMayBeTheLogitOfOneToken) {
  Files files = Good();
  files["pair_frame.json"]["false_token_id"] = nullptr;
  const auto config = Read(files);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->serving.classifier.logits->false_token, -1);
}

TEST(PairFrameTest, AClassifierOfRowsMayHaveAFrame) {
  Files files = WithModules();
  files.erase("modules.json");
  files["config.json"]["architectures"] = {"Qwen3ForSequenceClassification"};
  const auto config = Read(files);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_FALSE(config->serving.classifier.logits);
  EXPECT_TRUE(config->serving.frame);
}

// Copies a reranker of the goldens into `folder` and returns its model.
std::shared_ptr<const Model> LoadReranker(const std::string& name, const json& frame,
                                          const TemporaryDirectory& folder) {
  const std::string source = SLUICE_SOURCE_DIR "/tests/goldens/rerankers/" + name;
  for (const char* const file : {"config.json", "model.safetensors", "tokenizer.json"}) {
    std::filesystem::copy_file(source + "/" + file, folder.File(file));
  }
  std::ofstream(folder.File("pair_frame.json")) << frame.dump();
  auto model = LoadModel(name, 1, folder.File(""));
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : nullptr;
}

// The head of the first model has tied weights.
TEST(PairFrameTest, TheScoreIsTheDifferenceOfTwoRowsOfTheHead) {
  for (const std::string name : {"qwen3", "mxbai"}) {
    SCOPED_TRACE(name);
    for (const json& other : {json(7), json(nullptr)}) {
      const TemporaryDirectory folder;
      json frame = Good()["pair_frame.json"];
      frame["false_token_id"] = other;
      const auto model = LoadReranker(name, frame, folder);
      ASSERT_NE(model, nullptr);
      const int64_t width = model->config.hidden_size;
      const auto head =
          model->checkpoint.Find(name == "qwen3" ? "model.embed_tokens.weight" : "lm_head.weight",
                                 {model->config.vocab_size, width});
      ASSERT_TRUE(head.ok()) << head.status();
      std::vector<float> rows[2] = {std::vector<float>(width), std::vector<float>(width)};
      kernels::ConvertToFloat(head->data, head->dtype, 5 * width, width, rows[0].data());
      if (other == 7) {
        kernels::ConvertToFloat(head->data, head->dtype, 7 * width, width, rows[1].data());
      }
      std::mt19937_64 random(51);
      std::normal_distribution<double> normal;
      std::vector<double> state(width);
      double expected = 0;
      for (int64_t i = 0; i < width; ++i) {
        state[i] = normal(random);
        expected += state[i] * (double{rows[0][i]} - rows[1][i]);
      }
      std::vector<double> scores;
      model->classifier->Score(state, &scores);
      EXPECT_THAT(scores, ElementsAre(DoubleNear(expected, 1e-12)));
    }
  }
}

TEST(PairFrameTest, TextsAreInsertedInTheOrderOfTheParts) {
  const PairFrame frame = FrameOf(Good()["pair_frame.json"]);
  EXPECT_EQ(frame.Text({.query = "a", .document = "b"}), "QaDb=");
  EXPECT_EQ(frame.Text({.instruction = "i", .query = "a", .document = "b"}), "iQab");
  EXPECT_TRUE(frame.takes_instruction());
  const PairFrame plain = FrameOf({{"frame", {Input("document"), Text("|"), Input("query")}}});
  EXPECT_EQ(plain.Text({.query = "a", .document = "b"}), "b|a");
  EXPECT_FALSE(plain.takes_instruction());
}

TEST(PairFrameTest, TheTailIsTheTokensAfterTheLastText) {
  const auto tokenizer = MakeByteTokenizer(-1);
  const PairFrame frame = FrameOf(Good()["pair_frame.json"]);
  EXPECT_THAT(*frame.Tail("", *tokenizer), ElementsAre('='));
  EXPECT_THAT(*frame.Tail("i", *tokenizer), IsEmpty());
  const PairFrame ends = FrameOf(
      {{"frame", {Input("document"), Input("query"), Text("a b")}},
       {"frame_with_instruction", {Input("document"), Input("query"), Input("instruction")}}});
  EXPECT_THAT(*ends.Tail("", *tokenizer), ElementsAre('a', ' ', 'b'));
  EXPECT_THAT(*ends.Tail("xy", *tokenizer), ElementsAre('x', 'y'));
}

struct BadFrame {
  const char* name;
  bool modules = false;  // whether the files are those of WithModules
  const char* file = "pair_frame.json";
  const char* pointer;  // where `value` is put
  json value;
  const char* error;
};

class BadFrameTable : public TableTest<BadFrame> {};

TEST_P(BadFrameTable, IsRefused) {
  Files files = row().modules ? WithModules() : Good();
  files[row().file][json::json_pointer(row().pointer)] = row().value;
  EXPECT_THAT(std::string(Read(files).status().message()), HasSubstr(row().error));
}

const BadFrame kBadFrames[] = {
    {.name = "AnUnknownKey", .pointer = "/frames", .value = 1, .error = "pair_frame.json: frames"},
    {.name = "AMissingFrame",
     .pointer = "/frame",
     .value = nullptr,
     .error = "pair_frame.json: frame is not a list of 1 to 32 parts"},
    {.name = "AFrameWithoutParts",
     .pointer = "/frame",
     .value = json::array(),
     .error = "frame is not a list of 1 to 32 parts"},
    {.name = "AFrameOfTooManyParts",
     .pointer = "/frame",
     .value = json(33, Text("a")),
     .error = "frame is not a list of 1 to 32 parts"},
    {.name = "APartThatIsAText",
     .pointer = "/frame/0",
     .value = "Q",
     .error = "frame[0] is not an object with one of the keys text and input"},
    {.name = "APartOfTwoKinds",
     .pointer = "/frame/0/input",
     .value = "query",
     .error = "frame[0] is not an object with one of the keys text and input"},
    {.name = "APartOfAnUnknownKind",
     .pointer = "/frame/0",
     .value = {{"token", 3}},
     .error = "frame[0] is wrong: token"},
    {.name = "ATextOfAnotherType",
     .pointer = "/frame/0/text",
     .value = 3,
     .error = "frame[0] is wrong: text"},
    {.name = "AnEmptyText",
     .pointer = "/frame/0/text",
     .value = "",
     .error = "frame[0] is wrong: text is empty"},
    {.name = "ATextThatIsTooLong",
     .pointer = "/frame/0/text",
     .value = std::string(16385, 'a'),
     .error = "frame[0] is wrong: text"},
    {.name = "AnUnknownInput",
     .pointer = "/frame/1/input",
     .value = "passage",
     .error = "frame[1] is wrong: input"},
    {.name = "AFrameWithoutAQuery",
     .pointer = "/frame/1",
     .value = Text("a"),
     .error = "frame has the input query 0 times; expected 1"},
    {.name = "AFrameWithTwoDocuments",
     .pointer = "/frame/0",
     .value = Input("document"),
     .error = "frame has the input document 2 times; expected 1"},
    {.name = "AnInstructionInThePlainFrame",
     .pointer = "/frame/0",
     .value = Input("instruction"),
     .error = "frame has the input instruction 1 times; expected 0"},
    {.name = "AFrameThatMissesItsInstruction",
     .pointer = "/frame_with_instruction/0",
     .value = Text("a"),
     .error = "frame_with_instruction has the input instruction 0 times; expected 1"},
    {.name = "ATokenBeyondTheVocabulary",
     .pointer = "/true_token_id",
     .value = 300,
     .error = "pair_frame.json: true_token_id is 300"},
    {.name = "ANegativeToken",
     .pointer = "/false_token_id",
     .value = -1,
     .error = "pair_frame.json: false_token_id is -1"},
    {.name = "EqualTokens",
     .pointer = "/false_token_id",
     .value = 5,
     .error = "false_token_id is equal to true_token_id"},
    {.name = "AMissingToken",
     .pointer = "/true_token_id",
     .value = nullptr,
     .error = "pair_frame.json: false_token_id needs true_token_id"},
    {.name = "AnUnknownActivation",
     .pointer = "/activation_fn",
     .value = "os.system",
     .error = "pair_frame.json: activation_fn \"os.system\" is not supported"},
    {.name = "AModelWithoutAHead",
     .file = "config.json",
     .pointer = "/architectures/0",
     .value = "Qwen3Model",
     .error = "true_token_id needs a language model without a classifier; Qwen3Model has no head"},
    {.name = "AScoreOfAClassifier",
     .file = "config.json",
     .pointer = "/architectures/0",
     .value = "Qwen3ForSequenceClassification",
     .error = "needs a language model without a classifier"},
    {.name = "AScoreInBothFiles",
     .modules = true,
     .pointer = "/true_token_id",
     .value = 5,
     .error = "pair_frame.json: true_token_id needs a language model without a classifier"},
    {.name = "AnUnknownKeyOfTheModule",
     .modules = true,
     .file = "1_LogitScore/config.json",
     .pointer = "/scale",
     .value = 2,
     .error = "1_LogitScore/config.json: scale"},
    {.name = "AnotherInputOfTheModule",
     .modules = true,
     .file = "1_LogitScore/config.json",
     .pointer = "/module_input_name",
     .value = "token_embeddings",
     .error = "1_LogitScore/config.json: module_input_name is \"token_embeddings\""},
    {.name = "ATokenOfTheModuleBeyondTheVocabulary",
     .modules = true,
     .file = "1_LogitScore/config.json",
     .pointer = "/true_token_id",
     .value = 300,
     .error = "1_LogitScore/config.json: true_token_id is 300"},
    {.name = "AnotherTask",
     .modules = true,
     .file = "sentence_bert_config.json",
     .pointer = "/transformer_task",
     .value = "feature-extraction",
     .error = "sentence_bert_config.json: transformer_task is \"feature-extraction\""},
    {.name = "AnotherOutputOfMessages",
     .modules = true,
     .file = "sentence_bert_config.json",
     .pointer = "/modality_config/message/method_output_name",
     .value = "hidden_states",
     .error = "method_output_name is \"hidden_states\""},
    {.name = "AnImage",
     .modules = true,
     .file = "sentence_bert_config.json",
     .pointer = "/modality_config/image",
     .value = 1,
     .error = "sentence_bert_config.json: modality_config"},
    {.name = "AnotherLimitOfTheTemplate",
     .modules = true,
     .file = "sentence_bert_config.json",
     .pointer = "/processing_kwargs/chat_template/max_length",
     .value = 12,
     .error = "chat_template.max_length is not supported; set max_seq_length"},
    {.name = "AnotherWayOfProcessing",
     .modules = true,
     .file = "sentence_bert_config.json",
     .pointer = "/processing_kwargs/text",
     .value = 1,
     .error = "processing_kwargs.text"},
};
SLUICE_TABLE(BadFrameTable, kBadFrames);

TEST(PairFrameTest, AScoreFromLogitsNeedsAFrame) {
  Files files = WithModules();
  files.erase("pair_frame.json");
  const std::string remedy = "python -m sluice_client.pair_frame FOLDER";
  EXPECT_THAT(std::string(Read(files).status().message()), HasSubstr(remedy));
  files.erase("sentence_bert_config.json");
  EXPECT_THAT(std::string(Read(files).status().message()),
              HasSubstr("the folder has no pair_frame.json"));
}

TEST(PairFrameTest, AFrameNeedsAScore) {
  Files files = Good();
  files["pair_frame.json"] = {{"frame", {Input("query"), Input("document")}}};
  EXPECT_THAT(std::string(Read(files).status().message()),
              HasSubstr("pair_frame.json: true_token_id is missing, and neither modules.json nor "
                        "config.json has a score of rows"));
}

}  // namespace
}  // namespace sluice
