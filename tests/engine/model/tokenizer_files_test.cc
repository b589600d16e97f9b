#include "engine/model/tokenizer_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kWords[] = R"({
  "added_tokens": [{"id": 2, "content": "<s>", "special": true}],
  "pre_tokenizer": {"type": "WhitespaceSplit"},
  "model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "<s>": 2, "</s>": 3},
            "unk_token": "a"}})";

class TokenizerFilesTest : public ::testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text) const {
    WriteTestFile(folder_.File(name), text);
  }
  absl::StatusOr<std::unique_ptr<const Tokenizer>> Load(int64_t vocab_size) const {
    return LoadTokenizer(*Directory::Open(folder_.File("")), vocab_size);
  }
  absl::StatusOr<std::vector<int32_t>> Ends() const {
    return LoadEndTokens(*Directory::Open(folder_.File("")), 10);
  }

  TemporaryDirectory folder_;
};

TEST_F(TokenizerFilesTest, ADirectoryWithoutTokenizerFilesHasNoTokenizer) {
  const auto tokenizer = Load(10);
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ(*tokenizer, nullptr);
  EXPECT_THAT(Ends().value(), IsEmpty());
}

TEST_F(TokenizerFilesTest, TheOtherFilesDefineTheSpecialTokens) {
  Write("tokenizer.json", kWords);
  EXPECT_THAT((*Load(10))->Encode("b a").value(), ElementsAre(1, 0));
  Write("special_tokens_map.json", R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}})");
  EXPECT_EQ((*Load(10))->Decode(std::vector<int32_t>{2, 1, 3}), "b");
  Write("tokenizer_config.json", R"({"add_bos_token": true, "add_eos_token": true})");
  EXPECT_THAT((*Load(10))->Encode("b").value(), ElementsAre(2, 1, 3));
}

TEST_F(TokenizerFilesTest, ASpecialTokenWithoutATextIsIgnored) {
  Write("tokenizer.json", kWords);
  Write("special_tokens_map.json", R"({"bos_token": {"lstrip": true}, "eos_token": "</s>"})");
  Write("tokenizer_config.json", R"({"add_bos_token": true, "add_eos_token": true})");
  EXPECT_THAT((*Load(10))->Encode("b").value(), ElementsAre(1, 3));
}

TEST_F(TokenizerFilesTest, RefusesTextsWithTokensThatTheModelLacks) {
  Write("tokenizer.json", kWords);
  EXPECT_THAT(std::string((*Load(1))->Encode("a b").status().message()),
              HasSubstr("token 1 of the text is not one of the model's 1 tokens"));
  EXPECT_TRUE((*Load(1))->Encode("a").ok());
}

TEST_F(TokenizerFilesTest, ErrorsNameTheFile) {
  Write("tokenizer.json", "{");
  EXPECT_THAT(std::string(Load(10).status().message()),
              HasSubstr("tokenizer.json: bad JSON syntax"));
  Write("tokenizer.json", kWords);
  Write("tokenizer_config.json", "[]");
  EXPECT_THAT(std::string(Load(10).status().message()),
              HasSubstr("tokenizer_config.json is not a JSON object"));
}

TEST_F(TokenizerFilesTest, ReadsTheTokensThatEndGeneration) {
  Write("generation_config.json", R"({"eos_token_id": [3, 4]})");
  EXPECT_THAT(Ends().value(), ElementsAre(3, 4));
  Write("generation_config.json", R"({"eos_token_id": 10})");
  EXPECT_THAT(std::string(Ends().status().message()),
              HasSubstr("generation_config.json: eos_token_id is 10, must be in [0, 9]"));
}

}  // namespace
}  // namespace sluice
