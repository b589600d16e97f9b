#include "engine/model/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/model/tensor_names.h"
#include "tests/support/checkpoint_writer.h"
#include "tests/support/temporary_directory.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(TokenizerTest, TheByteTokenizerRoundTripsText) {
  std::string text;
  for (int i = 0; i < 256; ++i) text.push_back(static_cast<char>(i));
  const auto with_bos = MakeByteTokenizer(256);
  const std::vector<int32_t> ids = with_bos->Encode(text).value();
  ASSERT_EQ(ids.size(), 257u);
  EXPECT_EQ(ids[0], 256);
  EXPECT_EQ(ids[256], 255);
  EXPECT_EQ(with_bos->Decode(ids), text);
  EXPECT_EQ(MakeByteTokenizer(-1)->Encode(text)->size(), 256u);
}

TEST(TokenizerTest, SpecialTokensDecodeToNothing) {
  const std::vector<int32_t> ids = {257, 'a', -1, 1 << 30, 'b'};
  EXPECT_EQ(MakeByteTokenizer(256)->Decode(ids), "ab");
  EXPECT_THAT(MakeByteTokenizer(256)->Encode("").value(), ElementsAre(256));
}

TEST(LoadModelTest, LoadsAModelFromTheWriter) {
  ModelConfig config = testing::TinyConfig();
  config.vocab_size = 258;
  config.byte_tokenizer = true;
  config.bos_token_id = 256;
  const TemporaryDirectory directory;
  testing::WriteModel(config, 1, kernels::DType::kBF16, directory.path());
  const auto model = LoadModel("m", 3, directory.path());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->name, "m");
  EXPECT_EQ((*model)->version, 3);
  ASSERT_NE((*model)->tokenizer, nullptr);
  EXPECT_THAT((*model)->tokenizer->Encode("!").value(), ElementsAre(256, '!'));
  EXPECT_TRUE((*model)->checkpoint.Find("lm_head.weight", {258, 32}).ok());
  EXPECT_EQ(testing::RandomModel(testing::TinyConfig(), 1)->tokenizer, nullptr);
}

TEST(LoadModelTest, ATokenizerOfNoneIgnoresTheTokenizersFiles) {
  const TemporaryDirectory directory;
  testing::WriteModel(testing::TinyConfig(), 1, kernels::DType::kBF16, directory.path());
  WriteTestFile(directory.File("tokenizer.json"), "{");
  EXPECT_FALSE(LoadModel("m", 1, directory.path()).ok());
  std::ifstream file(directory.File("config.json"));
  nlohmann::json config = nlohmann::json::parse(file);
  config["sluice"]["tokenizer"] = "none";
  WriteTestFile(directory.File("config.json"), config.dump());
  const auto model = LoadModel("m", 1, directory.path());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->tokenizer, nullptr);
}

TEST(LoadModelTest, ErrorsNameTheFile) {
  const TemporaryDirectory directory;
  const auto message = [&directory] {
    return std::string(LoadModel("m", 1, directory.path()).status().message());
  };
  EXPECT_THAT(message(), HasSubstr("cannot open config.json"));
  WriteTestFile(directory.File("config.json"), "{}");
  EXPECT_THAT(message(), HasSubstr("config.json: architectures"));
  WriteTestFile(directory.File("config.json"), std::string((1 << 20) + 1, ' '));
  EXPECT_THAT(message(), HasSubstr("config.json has 1048577 bytes; the limit is 1048576"));
  WriteTestFile(directory.File("config.json"), testing::ConfigJson(testing::TinyConfig()));
  EXPECT_THAT(message(), HasSubstr("model.safetensors"));
  std::filesystem::remove(directory.File("config.json"));
  std::filesystem::create_symlink("/etc/hostname", directory.File("config.json"));
  EXPECT_THAT(message(), HasSubstr("config.json leads out of the root directory by the symbolic "
                                   "link config.json; put the file in the place of the link"));
}

// Writes a model and returns the text of its config.json as an object.
nlohmann::json WriteTiny(const ModelConfig& config, const TemporaryDirectory& directory) {
  testing::WriteModel(config, 1, kernels::DType::kF32, directory.path());
  return nlohmann::json::parse(ReadTestFile(directory.File("config.json")));
}

// Renames a tensor in the header of the file; the names must have the same length.
void RenameTensor(const std::string& file, const std::string& from, const std::string& to) {
  std::string bytes = ReadTestFile(file);
  const size_t at = bytes.find('"' + from + '"');
  ASSERT_NE(at, bytes.npos) << from;
  ASSERT_EQ(from.size(), to.size());
  bytes.replace(at + 1, from.size(), to);
  WriteTestFile(file, bytes);
}

TEST(LoadModelTest, FollowsTheLinksOfASnapshotInTheCacheOfTheHub) {
  const TemporaryDirectory cache;
  const std::filesystem::path blobs = cache.File("models--org--name/blobs");
  const std::filesystem::path snapshot = cache.File("models--org--name/snapshots/0123abcd");
  std::filesystem::create_directories(blobs);
  std::filesystem::create_directories(snapshot / "0_Transformer");
  const TemporaryDirectory written;
  testing::WriteModel(testing::TinyConfig(), 1, kernels::DType::kF32, written.path());
  for (const char* const name : {"config.json", "model.safetensors"}) {
    std::filesystem::copy(written.File(name), blobs / name);
    std::filesystem::create_symlink(std::string("../../blobs/") + name, snapshot / name);
  }
  EXPECT_TRUE(LoadModel("m", 1, snapshot.string()).ok());
  // A link to the snapshot does not matter, and neither does a slash at its end.
  std::filesystem::create_symlink(snapshot, cache.File("current"));
  EXPECT_TRUE(LoadModel("m", 1, cache.File("current/")).ok());
  // A link may not leave the model's folder of the cache.
  std::filesystem::rename(blobs / "config.json", cache.File("config.json"));
  std::filesystem::create_symlink("../../config.json", blobs / "config.json");
  EXPECT_THAT(std::string(LoadModel("m", 1, snapshot.string()).status().message()),
              HasSubstr("leads out of the root directory"));
}

TEST(LoadModelTest, FollowsLinksBelowTheModelsFolderOnly) {
  const TemporaryDirectory directory;
  std::filesystem::create_directory(directory.File("model"));
  testing::WriteModel(testing::TinyConfig(), 1, kernels::DType::kF32, directory.File("model"));
  std::filesystem::create_directory(directory.File("model/..data"));
  std::filesystem::rename(directory.File("model/config.json"),
                          directory.File("model/..data/config.json"));
  std::filesystem::create_symlink("..data/config.json", directory.File("model/config.json"));
  EXPECT_TRUE(LoadModel("m", 1, directory.File("model")).ok());
  std::filesystem::rename(directory.File("model/..data/config.json"),
                          directory.File("config.json"));
  std::filesystem::remove(directory.File("model/config.json"));
  std::filesystem::create_symlink("../config.json", directory.File("model/config.json"));
  EXPECT_THAT(std::string(LoadModel("m", 1, directory.File("model")).status().message()),
              HasSubstr("leads out of the root directory"));
}

TEST(LoadModelTest, ATiedEmbeddingMayHaveTheNameOfTheHead) {
  const TemporaryDirectory directory;
  ModelConfig tiny = testing::TinyConfig();
  tiny.tie_word_embeddings = true;
  WriteTiny(tiny, directory);
  const std::vector<int64_t> shape = {tiny.vocab_size, tiny.hidden_size};
  // "lm_head.weight" is shorter than the name that it replaces; spaces may follow a JSON string.
  std::string bytes = ReadTestFile(directory.File("model.safetensors"));
  const std::string from = "\"model.embed_tokens.weight\"";
  std::string to = "\"lm_head.weight\"";
  to.resize(from.size(), ' ');
  bytes.replace(bytes.find(from), from.size(), to);
  WriteTestFile(directory.File("model.safetensors"), bytes);
  const auto model = LoadModel("m", 1, directory.path());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE((*model)->checkpoint.Find("model.embed_tokens.weight", shape).ok());
}

TEST(LoadModelTest, SharedTensorsOfEachFamilyAreFoundUnderBothNames) {
  const auto names = [](const std::string& text) {
    std::vector<std::string> pairs;
    const auto config = ParseModelConfig(text);
    EXPECT_TRUE(config.ok()) << config.status();
    if (!config.ok()) return pairs;
    for (const SharedTensor& shared : SharedTensors(*config)) {
      pairs.push_back(shared.name + "=" + shared.other);
    }
    return pairs;
  };
  EXPECT_THAT(names(R"({"architectures": ["T5EncoderModel"], "vocab_size": 50, "d_model": 24,
                        "d_ff": 40, "num_layers": 2, "num_heads": 4, "d_kv": 6})"),
              ElementsAre("transformer.shared.weight=transformer.encoder.embed_tokens.weight",
                          "shared.weight=encoder.embed_tokens.weight"));
  const std::string sizes = R"(, "vocab_size": 50, "hidden_size": 24, "num_hidden_layers": 1,
      "num_attention_heads": 3, "intermediate_size": 40, "max_position_embeddings": 20})";
  EXPECT_THAT(names(R"({"architectures": ["BertForMaskedLM"])" + sizes),
              ElementsAre("bert.embeddings.word_embeddings.weight=cls.predictions.decoder.weight",
                          "cls.predictions.bias=cls.predictions.decoder.bias"));
  EXPECT_THAT(names(R"({"architectures": ["RobertaForMaskedLM"])" + sizes),
              ElementsAre("roberta.embeddings.word_embeddings.weight=lm_head.decoder.weight",
                          "lm_head.bias=lm_head.decoder.bias"));
}

TEST(LoadModelTest, AMaskedModelWithoutItsHeadServesStates) {
  const TemporaryDirectory directory;
  const std::filesystem::path golden =
      std::filesystem::path(SLUICE_SOURCE_DIR) / "tests/goldens/families/mpnet_3";
  for (const char* const name : {"config.json", "model.safetensors"}) {
    std::filesystem::copy(golden / name, directory.File(name));
  }
  nlohmann::json config = nlohmann::json::parse(ReadTestFile(directory.File("config.json")));
  ASSERT_EQ(config["architectures"][0], "MPNetModel");
  config["architectures"] = {"MPNetForMaskedLM"};
  WriteTestFile(directory.File("config.json"), config.dump());
  const auto model = LoadModel("m", 1, directory.path());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_FALSE((*model)->config.has_lm_head);
  EXPECT_THAT((*model)->config.warnings,
              ElementsAre(::testing::HasSubstr("type_vocab_size"),
                          "the weights have no head, although config.json names MPNetForMaskedLM; "
                          "the model serves the states of its last layer"));
}

TEST(LoadModelTest, ADecoderWithoutItsHeadIsRefusedUnlessModulesUseItsStates) {
  const TemporaryDirectory directory;
  ModelConfig tiny = testing::TinyConfig();
  tiny.tie_word_embeddings = false;
  WriteTiny(tiny, directory);
  RenameTensor(directory.File("model.safetensors"), "lm_head.weight", "no_head.weight");
  auto model = LoadModel("m", 1, directory.path());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE((*model)->config.has_lm_head);  // a backend reports the missing tensor
  WriteTestFile(directory.File("modules.json"), R"([
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling",
     "type": "sentence_transformers.models.Pooling"}])");
  std::filesystem::create_directory(directory.File("1_Pooling"));
  WriteTestFile(directory.File("1_Pooling/config.json"), R"({"pooling_mode_lasttoken": true})");
  model = LoadModel("m", 1, directory.path());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_FALSE((*model)->config.has_lm_head);
}

}  // namespace
}  // namespace sluice
