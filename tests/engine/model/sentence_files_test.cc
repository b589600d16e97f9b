// Tests how the files of sentence-transformers are read and refused. tests/e2e/test_sentences.py
// compares the results with that library.
#include "engine/model/sentence_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/model/model.h"
#include "tests/support/table.h"
#include "tests/support/temporary_directory.h"

namespace sluice {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The files of a directory, by their names.
using Files = std::map<std::string, json>;

Files Good() {
  const auto module = [](const char* type, const char* path) {
    return json{{"idx", 0}, {"name", "0"}, {"path", path}, {"type", type}};
  };
  return {{"config.json",
           {{"architectures", {"BertModel"}},
            {"vocab_size", 50},
            {"hidden_size", 24},
            {"num_hidden_layers", 1},
            {"num_attention_heads", 3},
            {"intermediate_size", 40},
            {"max_position_embeddings", 20}}},
          {"modules.json",
           {module("sentence_transformers.models.Transformer", ""),
            module("sentence_transformers.models.Pooling", "1_Pooling"),
            module("sentence_transformers.base.modules.dense.Dense", "2_Dense"),
            module("sentence_transformers.models.Normalize", "3_Normalize")}},
          {"1_Pooling/config.json",
           {{"word_embedding_dimension", 24}, {"pooling_mode_cls_token", true}}},
          {"2_Dense/config.json",
           {{"in_features", 24},
            {"out_features", 7},
            {"bias", false},
            {"activation_function", "torch.nn.modules.linear.Identity"}}},
          {"sentence_bert_config.json", {{"max_seq_length", 12}, {"do_lower_case", true}}},
          {"config_sentence_transformers.json",
           {{"prompts", {{"query", "q: "}, {"passage", "p: "}}},
            {"default_prompt_name", "query"},
            {"similarity_fn_name", "dot"}}},
          {"tokenizer_config.json", {{"model_max_length", 1e30}, {"truncation_side", "left"}}}};
}

class SentenceFilesTest : public ::testing::Test {
 protected:
  absl::StatusOr<ModelConfig> Read(const Files& files) {
    for (const auto& [name, content] : files) {
      std::filesystem::create_directories(std::filesystem::path(folder_.File(name)).parent_path());
      std::ofstream(folder_.File(name)) << content.dump();
    }
    return ReadModelConfig(*Directory::Open(folder_.File("")));
  }

  TemporaryDirectory folder_;
};

// Early releases keep the Transformer's files in a folder, and other keys in the config.json next
// to it.
TEST_F(SentenceFilesTest, ATransformerInAFolderIsTheSameModel) {
  Files files = Good();
  files["modules.json"][0]["path"] = "0_Transformer";
  for (const char* const name :
       {"config.json", "sentence_bert_config.json", "tokenizer_config.json"}) {
    files[std::string("0_Transformer/") + name] = files[name];
    files.erase(name);
  }
  files["config.json"] = {{"__version__", "0.2.5"}};
  const auto config = Read(files);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->max_positions, 12);
  EXPECT_TRUE(config->serving.lower_case);
  EXPECT_EQ(config->serving.truncate, Truncation::kLeft);
  EXPECT_EQ(config->serving.pooling, Poolings(Pooling::kCls));
}

TEST_F(SentenceFilesTest, EveryFileIsRead) {
  const auto config = Read(Good());
  ASSERT_TRUE(config.ok()) << config.status();
  const ServingConfig& serving = config->serving;
  EXPECT_EQ(serving.pooling, Poolings(Pooling::kCls));
  ASSERT_EQ(serving.dense.size(), 1u);
  EXPECT_EQ(serving.dense[0].folder, "2_Dense");
  EXPECT_EQ(serving.dense[0].function, DenseFunction::kIdentity);
  EXPECT_FALSE(serving.dense[0].bias);
  EXPECT_EQ(config->embedding_size(), 7);
  EXPECT_EQ(config->max_positions, 12);
  EXPECT_EQ(config->position_rows, 20);
  EXPECT_EQ(serving.truncate, Truncation::kLeft);
  EXPECT_EQ(serving.default_prompt, "query");
  EXPECT_EQ(serving.FindPrompt("passage")->text, "p: ");
  EXPECT_EQ(serving.similarity, "dot");
  EXPECT_TRUE(serving.normalize && serving.lower_case && serving.pools_prompt);
}

TEST_F(SentenceFilesTest, WithoutModulesOtherFilesHaveNoEffect) {
  Files files = Good();
  files.erase("modules.json");
  files["sentence_bert_config.json"] = {{"nonsense", 1}};
  const auto config = Read(files);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->serving.pooling, Poolings(Pooling::kMean));
  EXPECT_EQ(config->max_positions, 20);
}

TEST_F(SentenceFilesTest, TheTokenizersLengthIsTheDefaultAndTheConfigSetsTruncation) {
  Files files = Good();
  files["sentence_bert_config.json"] = json::object();
  files["tokenizer_config.json"]["model_max_length"] = 9;
  files["config.json"]["sluice"] = {{"truncate", "error"}};
  const auto config = Read(files);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->max_positions, 9);
  EXPECT_EQ(config->serving.truncate, Truncation::kError);
}

TEST_F(SentenceFilesTest, SeveralModesAreConcatenatedInTheirOrder) {
  Files files = Good();
  files["1_Pooling/config.json"] = {{"embedding_dimension", 24},
                                    {"pooling_mode", {"lasttoken", "weightedmean"}},
                                    {"include_prompt", false}};
  files["2_Dense/config.json"]["in_features"] = 48;
  const auto config = Read(files);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->serving.pooling.all, ElementsAre(Pooling::kLast, Pooling::kWeightedMean));
  EXPECT_FALSE(config->serving.pools_prompt);
}

TEST_F(SentenceFilesTest, AFolderMayNotLeaveTheDirectory) {
  Files files = Good();
  files["modules.json"][1]["path"] = "../1_Pooling";
  EXPECT_FALSE(Read(files).ok());
  files = Good();
  ASSERT_TRUE(Read(files).ok());
  std::filesystem::remove_all(folder_.File("1_Pooling"));
  std::filesystem::create_symlink("/", folder_.File("1_Pooling"));
  EXPECT_FALSE(ReadModelConfig(*Directory::Open(folder_.File(""))).ok());
}

TEST_F(SentenceFilesTest, ChangesOfTheFilesChangeTheFingerprint) {
  ASSERT_TRUE(Read(Good()).ok());
  const auto directory = Directory::Open(folder_.File(""));
  std::filesystem::create_directories(folder_.File("labels/2_Dense"));
  for (const char* const name :
       {"modules.json", "1_Pooling/config.json", "config.json", "generation_config.json",
        "special_tokens_map.json", "config_sentence_transformers.json", "sentence_bert_config.json",
        "tokenizer.json", "model.safetensors", "model.safetensors.index.json", "pair_frame.json",
        "labels/tokenizer.json", "labels/2_Dense/model.safetensors"}) {
    const std::string before = *directory->Fingerprint();
    std::ofstream(folder_.File(name), std::ios::app) << " ";
    EXPECT_NE(*directory->Fingerprint(), before) << name;
  }
  const std::string before = *directory->Fingerprint();
  std::ofstream(folder_.File("README.md"), std::ios::app) << " ";
  EXPECT_EQ(*directory->Fingerprint(), before);
}

struct BadFilesRow {
  const char* name;
  const char* file;
  const char* pointer;  // of JSON, in the file
  json value;
  const char* error;
};
class BadFilesTable : public TableTest<BadFilesRow> {
 protected:
  TemporaryDirectory folder_;
};

TEST_P(BadFilesTable, TheErrorNamesFileAndKey) {
  Files files = Good();
  files[row().file][json::json_pointer(row().pointer)] = row().value;
  for (const auto& [name, content] : files) {
    std::filesystem::create_directories(std::filesystem::path(folder_.File(name)).parent_path());
    std::ofstream(folder_.File(name)) << content.dump();
  }
  const absl::Status status = ReadModelConfig(*Directory::Open(folder_.File(""))).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr(row().error));
}

const BadFilesRow kBadFiles[] = {
    {.name = "AnUnknownModuleIsRefused",
     .file = "modules.json",
     .pointer = "/1/type",
     .value = "sentence_transformers.models.CNN",
     .error = "modules.json: module 1, CNN, is not supported here"},
    {.name = "AModuleOfAnotherPackageIsRefused",
     .file = "modules.json",
     .pointer = "/1/type",
     .value = "custom_code.Pooling",
     .error = "modules.json: module 1: type \"custom_code.Pooling\" is not supported"},
    {.name = "ATransformerInAMissingFolderIsRefused",
     .file = "modules.json",
     .pointer = "/0/path",
     .value = "0_Transformer",
     .error = "0_Transformer"},
    {.name = "ASparseEncoderWithoutAHeadIsRefused",
     .file = "modules.json",
     .pointer = "/0/type",
     .value = "sentence_transformers.sparse_encoder.modules.MLMTransformer",
     .error = "module 0, MLMTransformer, must be Transformer"},
    {.name = "ASecondPoolingIsRefused",
     .file = "modules.json",
     .pointer = "/2/type",
     .value = "sentence_transformers.models.Pooling",
     .error = "module 2, Pooling, is not supported here"},
    {.name = "AModuleBehindNormalizeIsRefused",
     .file = "modules.json",
     .pointer = "/2",
     .value = {{"type", "sentence_transformers.models.Normalize"}, {"path", "2_Normalize"}},
     .error = "module 3, Normalize, is not supported after Normalize"},
    {.name = "AMarkerOfAModelWithoutVectorsIsRefused",
     .file = "config_sentence_transformers.json",
     .pointer = "/query_prefix",
     .value = "[Q] ",
     .error = "config_sentence_transformers.json: query_prefix"},
    {.name = "QueryExpansionOfAModelWithoutVectorsIsRefused",
     .file = "sentence_bert_config.json",
     .pointer = "/query_expansion",
     .value = {{"strategy", "fixed"}, {"length", 9}},
     .error = "query_expansion"},
    {.name = "ATaskLengthOfZeroIsRefused",
     .file = "sentence_bert_config.json",
     .pointer = "/query_length",
     .value = 0,
     .error = "sentence_bert_config.json: query_length"},
    {.name = "ARouterNeedsItsFile",
     .file = "modules.json",
     .pointer = "",
     .value = {{{"type", "sentence_transformers.models.Router"}, {"path", ""}}},
     .error = "router_config.json: "},
    {.name = "AMissingFolderIsRefused",
     .file = "modules.json",
     .pointer = "/1/path",
     .value = "1_Missing",
     .error = "1_Missing"},
    {.name = "AnUnknownKeyOfAModuleIsRefused",
     .file = "modules.json",
     .pointer = "/1/scale",
     .value = 2,
     .error = "modules.json: module 1: scale"},
    {.name = "AnUnknownModeOfPoolingIsRefused",
     .file = "1_Pooling/config.json",
     .pointer = "/pooling_mode",
     .value = "median",
     .error = "1_Pooling/config.json: pooling_mode has \"median\""},
    {.name = "AnUnknownKeyOfPoolingIsRefused",
     .file = "1_Pooling/config.json",
     .pointer = "/pooling_mode_median",
     .value = true,
     .error = "1_Pooling/config.json: pooling_mode_median"},
    {.name = "AnotherWidthIsRefused",
     .file = "1_Pooling/config.json",
     .pointer = "/word_embedding_dimension",
     .value = 25,
     .error = "1_Pooling/config.json: word_embedding_dimension is 25; only 24"},
    {.name = "AnotherInputOfADenseLayerIsRefused",
     .file = "2_Dense/config.json",
     .pointer = "/in_features",
     .value = 25,
     .error = "2_Dense/config.json: in_features is 25; expected 24"},
    {.name = "AHugeDenseLayerIsRefused",
     .file = "2_Dense/config.json",
     .pointer = "/out_features",
     .value = int64_t{1} << 40,
     .error = "2_Dense/config.json: out_features"},
    {.name = "AnUnknownActivationIsRefused",
     .file = "2_Dense/config.json",
     .pointer = "/activation_function",
     .value = "os.system",
     .error = "2_Dense/config.json: activation_function \"os.system\" is not supported"},
    {.name = "AResidualIsRefused",
     .file = "2_Dense/config.json",
     .pointer = "/use_residual",
     .value = true,
     .error = "2_Dense/config.json: use_residual is true; only false"},
    {.name = "ATokenwiseLayerIsRefused",
     .file = "2_Dense/config.json",
     .pointer = "/module_input_name",
     .value = "token_embeddings",
     .error = "2_Dense/config.json: module_input_name is \"token_embeddings\""},
    {.name = "ADenseLayerOfTokensMustSayItsInput",
     .file = "modules.json",
     .pointer = "/1",
     .value = {{"type", "sentence_transformers.base.modules.dense.Dense"}, {"path", "2_Dense"}},
     .error = "2_Dense/config.json: module_input_name is missing, and no Pooling precedes"},
    {.name = "AnUnknownSimilarityIsRefused",
     .file = "config_sentence_transformers.json",
     .pointer = "/similarity_fn_name",
     .value = "hamming",
     .error = "config_sentence_transformers.json: similarity_fn_name"},
    {.name = "ADefaultPromptThatIsMissingIsRefused",
     .file = "config_sentence_transformers.json",
     .pointer = "/default_prompt_name",
     .value = "title",
     .error = "config_sentence_transformers.json: default_prompt_name is not one of the prompts"},
    {.name = "AnotherKindOfModelIsRefused",
     .file = "config_sentence_transformers.json",
     .pointer = "/model_type",
     .value = "SparseEncoder",
     .error = "config_sentence_transformers.json: model_type is \"SparseEncoder\""},
    {.name = "AnUnknownKeyOfPromptsIsRefused",
     .file = "config_sentence_transformers.json",
     .pointer = "/truncate_dim",
     .value = 5,
     .error = "config_sentence_transformers.json: truncate_dim"},
    {.name = "AnUnknownSettingIsRefused",
     .file = "sentence_bert_config.json",
     .pointer = "/query_expansion",
     .value = true,
     .error = "sentence_bert_config.json: query_expansion"},
    {.name = "ALengthOfNothingIsRefused",
     .file = "sentence_bert_config.json",
     .pointer = "/max_seq_length",
     .value = 0,
     .error = "sentence_bert_config.json: max_seq_length"},
};
SLUICE_TABLE(BadFilesTable, kBadFiles);

}  // namespace
}  // namespace sluice
