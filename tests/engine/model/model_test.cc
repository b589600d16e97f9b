#include "engine/model/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

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
  EXPECT_THAT(message(), HasSubstr("config.json is a symbolic link"));
}

}  // namespace
}  // namespace sluice
