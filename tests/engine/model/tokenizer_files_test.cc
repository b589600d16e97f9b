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
  absl::StatusOr<std::vector<int32_t>> Ends() {
    config_.eos_token_ids.clear();
    config_.vocab_size = 10;
    const absl::Status status = LoadEndTokens(*Directory::Open(folder_.File("")), &config_);
    if (!status.ok()) return status;
    return config_.eos_token_ids;
  }

  TemporaryDirectory folder_;
  ModelConfig config_;
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
  EXPECT_THAT(Ends().value(), IsEmpty());
  EXPECT_THAT(config_.warnings,
              ElementsAre("generation_config.json: eos_token_id names 10, which is ignored: the "
                          "vocabulary has ids 0 to 9"));
}

// transformers 4.57.1 and 5.24.0 give the values below.
constexpr char kBertWords[] = R"({
  "normalizer": {"type": "BertNormalizer", "lowercase": true, "strip_accents": null},
  "pre_tokenizer": {"type": "BertPreTokenizer"},
  "model": {"type": "WordPiece", "unk_token": "?", "vocab": {"?": 0, "a": 1, "A": 2, "e": 3,
            "\u00e9": 4, "\u4e2d\u4e2d": 5, "\u03c3\u03c2": 6, "\u03c3\u03c3": 7}}})";

TEST_F(TokenizerFilesTest, AClassOfBertSetsItsNormalizer) {
  Write("tokenizer.json", kBertWords);
  const auto encode = [this](const std::string& settings, const std::string& text) {
    Write("tokenizer_config.json", settings);
    const auto tokenizer = Load(10);
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    return (*tokenizer)->Encode(text).value();
  };
  EXPECT_THAT(encode(R"({"tokenizer_class": "BertTokenizer"})", "A \u00e9"), ElementsAre(1, 3));
  EXPECT_THAT(encode(R"({"tokenizer_class": "BertTokenizerFast", "do_lower_case": false})", "A"),
              ElementsAre(2));
  EXPECT_THAT(encode(R"({"tokenizer_class": "BertTokenizer", "strip_accents": false})", "\u00e9"),
              ElementsAre(4));
  EXPECT_THAT(encode(R"({"tokenizer_class": "BertTokenizer", "tokenize_chinese_chars": false})",
                     "\u4e2d\u4e2d"),
              ElementsAre(5));
  // Another class leaves the file's normalizer as it is; without a class the keys count.
  EXPECT_THAT(
      encode(R"({"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": false})", "A"),
      ElementsAre(1));
  EXPECT_THAT(encode(R"({"do_lower_case": false})", "A"), ElementsAre(2));
}

TEST_F(TokenizerFilesTest, TokensOfTheSettingsAreFoundWithTheirFlags) {
  Write("tokenizer.json", kWords);
  const auto load = [this](const std::string& settings) {
    Write("tokenizer_config.json", settings);
    auto tokenizer = Load(10);
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    return *std::move(tokenizer);
  };
  // A token of added_tokens_decoder that is not in the vocabulary gets the next id.
  const auto added = load(R"({"tokenizer_class": "PreTrainedTokenizerFast", "added_tokens_decoder":
      {"9": {"content": "yy", "special": false, "normalized": false},
       "3": {"content": "</s>", "special": true, "normalized": false}}})");
  EXPECT_THAT(added->Encode("ayya</s>").value(), ElementsAre(0, 4, 0, 3));
  EXPECT_EQ(added->Decode(std::vector<int32_t>{0, 4, 3}), "a yy");
  // The flags replace the flags in tokenizer.json.
  const auto word = load(R"({"tokenizer_class": "PreTrainedTokenizerFast", "added_tokens_decoder":
      {"2": {"content": "<s>", "special": false, "single_word": true, "normalized": false}}})");
  EXPECT_THAT(word->Encode("b<s>b <s>").value(), ElementsAre(0, 2));
  for (const char* const more : {R"(["<im>"])", R"({"im": "<im>"})"}) {
    const auto extra = load(std::string(R"({"extra_special_tokens": )") + more + "}");
    EXPECT_THAT(extra->Encode("b<im>b").value(), ElementsAre(1, 4, 1)) << more;
    EXPECT_EQ(extra->Decode(std::vector<int32_t>{1, 4}), "b") << more;
  }
  Write("added_tokens.json", R"({"<new>": 4})");
  EXPECT_THAT(load("{}")->Encode("b<new>b").value(), ElementsAre(1, 4, 1));
}

TEST_F(TokenizerFilesTest, TheClassDecidesWhetherAddBosTokenCounts) {
  Write("tokenizer.json", kWords);
  const auto encode = [this](const std::string& name, const char* add) {
    Write("tokenizer_config.json", R"({"bos_token": "<s>", "tokenizer_class": ")" + name +
                                       R"(", "add_bos_token": )" + add + "}");
    return (*Load(10))->Encode("b").value();
  };
  for (const char* const name :
       {"PreTrainedTokenizerFast", "GPT2Tokenizer", "Qwen2TokenizerFast"}) {
    EXPECT_THAT(encode(name, "true"), ElementsAre(1)) << name;
  }
  for (const char* const name : {"LlamaTokenizer", "LlamaTokenizerFast", "GemmaTokenizer"}) {
    EXPECT_THAT(encode(name, "true"), ElementsAre(2, 1)) << name;
  }
}

TEST_F(TokenizerFilesTest, AFileOfAnotherKindOfTokenizerIsStated) {
  std::vector<std::string> stated;
  EXPECT_EQ(*LoadTokenizer(*Directory::Open(folder_.File("")), 10, false, &stated), nullptr);
  EXPECT_THAT(stated, IsEmpty());
  Write("vocab.txt", "[UNK]");
  EXPECT_EQ(*LoadTokenizer(*Directory::Open(folder_.File("")), 10, false, &stated), nullptr);
  EXPECT_THAT(stated, ElementsAre(HasSubstr("vocab.txt is not read without tokenizer.json")));
}

TEST_F(TokenizerFilesTest, AChangeOfTheTemplateIsStated) {
  Write("tokenizer.json", kWords);
  const auto warnings = [this](const char* keys) {
    Write("tokenizer_config.json", std::string(R"({"bos_token": "<s>", "eos_token": "</s>",
      "tokenizer_class": "LlamaTokenizer", )") +
                                       keys + "}");
    std::vector<std::string> stated;
    EXPECT_TRUE(LoadTokenizer(*Directory::Open(folder_.File("")), 10, false, &stated).ok());
    return stated;
  };
  EXPECT_THAT(warnings(R"("add_bos_token": false, "add_eos_token": false)"), IsEmpty());
  EXPECT_THAT(warnings(R"("add_bos_token": true, "add_eos_token": true)"),
              ElementsAre("add_bos_token of tokenizer_config.json adds \"<s>\", which the "
                          "post_processor of tokenizer.json does not add; transformers 4 does so "
                          "for some classes, and version 5 for none",
                          HasSubstr("add_eos_token of tokenizer_config.json adds \"</s>\"")));
}

TEST_F(TokenizerFilesTest, AClassOfByteLevelSetsThePrefixSpace) {
  const auto encode = [this](const char* file, const std::string& settings) {
    Write("tokenizer.json", std::string(R"({"pre_tokenizer": {"type": "ByteLevel",
      "add_prefix_space": )") + file +
                                R"(}, "model": {"type": "BPE", "vocab": {"a": 0,
      "\u0120": 1, "\u0120a": 2}, "merges": [["\u0120", "a"]]}})");
    Write("tokenizer_config.json", settings);
    return (*Load(10))->Encode("a").value();
  };
  for (const char* const file : {"true", "false"}) {
    EXPECT_THAT(encode(file, R"({"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": true})"),
                ElementsAre(2));
    EXPECT_THAT(encode(file, R"({"tokenizer_class": "RobertaTokenizerFast"})"), ElementsAre(0));
  }
  EXPECT_THAT(encode("true", R"({"tokenizer_class": "PreTrainedTokenizerFast"})"), ElementsAre(2));
  // A contradiction between the files is stated.
  encode("true", R"({"tokenizer_class": "GPT2Tokenizer"})");
  std::vector<std::string> warnings;
  ASSERT_TRUE(LoadTokenizer(*Directory::Open(folder_.File("")), 10, false, &warnings).ok());
  EXPECT_THAT(warnings,
              ElementsAre(HasSubstr("tokenizer.json has add_prefix_space true, but "
                                    "add_prefix_space of tokenizer_config.json, or its default "
                                    "for the tokenizer_class, is false")));
}

TEST_F(TokenizerFilesTest, TheClassOfLlamaMayHaveNoMarkBeforeATextInAnyFormOfTheFile) {
  const char* const forms[] = {
      R"("normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
         {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]})",
      R"("pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first",
         "split": false})",
      R"("pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Metaspace",
         "replacement": "▁", "add_prefix_space": true}]})"};
  for (const std::string form : forms) {
    Write("tokenizer.json", "{" + form + R"(, "decoder": {"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "Fuse"},
      {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
      "model": {"type": "BPE", "vocab": {"a": 0, "▁": 1, "▁a": 2}, "merges": [["▁", "a"]]}})");
    const auto encode = [this](const std::string& settings) {
      Write("tokenizer_config.json", settings);
      const auto tokenizer = *Load(10);
      EXPECT_EQ(tokenizer->Decode(tokenizer->Encode("a a").value()), "a a");
      return tokenizer->Encode("a a").value();
    };
    EXPECT_THAT(encode(R"({"tokenizer_class": "LlamaTokenizer"})"), ElementsAre(2, 2)) << form;
    EXPECT_THAT(encode(R"({"tokenizer_class": "LlamaTokenizer", "add_prefix_space": false})"),
                ElementsAre(0, 2))
        << form;
    EXPECT_THAT(encode(R"({"tokenizer_class": "PreTrainedTokenizerFast",
                           "add_prefix_space": false})"),
                ElementsAre(2, 2))
        << form;
  }
}

TEST_F(TokenizerFilesTest, LowerCaseOfWholeTextsIsPythons) {
  Write("tokenizer.json", kBertWords);
  const auto tokenizer = LoadTokenizer(*Directory::Open(folder_.File("")), 10, true);
  // A final capital sigma, and one inside a word.
  EXPECT_THAT((*tokenizer)->Encode("\u03a3\u03a3").value(), ElementsAre(6));
  EXPECT_THAT((*Load(10))->Encode("\u03a3\u03a3").value(), ElementsAre(7));
}

}  // namespace
}  // namespace sluice
