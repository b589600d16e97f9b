// Tests tokenizer files and texts that are refused, and files with random changes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "engine/model/tokenizer/hugging_face.h"
#include "engine/model/tokenizer/pattern.h"
#include "engine/model/tokenizer/sentencepiece.h"
#include "tests/support/table.h"

namespace sluice::tokenize {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

json Small() {
  return json::parse(R"({
    "added_tokens": [{"id": 4, "content": "<s>", "special": true}],
    "normalizer": {"type": "Lowercase"},
    "pre_tokenizer": {"type": "Whitespace"},
    "post_processor": null,
    "decoder": {"type": "Fuse"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "?": 3}, "merges": ["a b"],
              "unk_token": "?"}})");
}

struct BadTokenizerRow {
  const char* name;
  const char* pointer;
  const char* value;
  const char* error;
};
class BadTokenizerTable : public TableTest<BadTokenizerRow> {};

TEST_P(BadTokenizerTable, TheErrorNamesTheFault) {
  ASSERT_TRUE(ParseHuggingFace(Small().dump(), {}).ok());
  json changed = Small();
  changed[json::json_pointer(row().pointer)] = json::parse(row().value);
  const auto tokenizer = ParseHuggingFace(changed.dump(), {});
  EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(tokenizer.status().message()), HasSubstr(row().error));
}

const BadTokenizerRow kBadTokenizerRows[] = {
    {.name = "ANormalizerOfAnUnknownTypeIsRefused",
     .pointer = "/normalizer/type",
     .value = R"("None")",
     .error = "normalizer.type \"None\" is not supported"},
    {.name = "AStepOfAnUnknownTypeIsRefused",
     .pointer = "/normalizer",
     .value = R"({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "X"}]})",
     .error = "normalizer.normalizers[1].type \"X\" is not supported"},
    {.name = "StepsThatAreNoListAreRefused",
     .pointer = "/normalizer",
     .value = R"({"type": "Sequence", "normalizers": 1})",
     .error = "normalizer.normalizers is not a list"},
    {.name = "ANormalizerThatIsANumberIsRefused",
     .pointer = "/normalizer",
     .value = "3",
     .error = "normalizer is not an object"},
    {.name = "APatternThatIsNotClosedIsRefused",
     .pointer = "/normalizer",
     .value = R"({"type": "Replace", "pattern": {"Regex": "(a"}, "content": ""})",
     .error = "normalizer.pattern.Regex is not a regular expression"},
    {.name = "ACharsmapThatIsNotBase64IsRefused",
     .pointer = "/normalizer",
     .value = R"({"type": "Precompiled", "precompiled_charsmap": "!"})",
     .error = "normalizer.precompiled_charsmap is not base64"},
    {.name = "ACharsmapShorterThanItSaysIsRefused",
     .pointer = "/normalizer",
     .value = R"({"type": "Precompiled", "precompiled_charsmap": "/////wAA"})",
     .error = "normalizer.precompiled_charsmap has an array of 4294967295 bytes in 2"},
    {.name = "APreTokenizerOfAnUnknownTypeIsRefused",
     .pointer = "/pre_tokenizer/type",
     .value = R"("None")",
     .error = "pre_tokenizer.type \"None\" is not supported"},
    {.name = "ASplitOfAnUnknownBehaviourIsRefused",
     .pointer = "/pre_tokenizer",
     .value = R"({"type": "Split", "pattern": {"String": " "}, "behavior": "Maybe"})",
     .error = "pre_tokenizer.behavior is not supported"},
    {.name = "AReplacementOfTwoCharactersIsRefused",
     .pointer = "/pre_tokenizer",
     .value = R"({"type": "Metaspace", "replacement": "__"})",
     .error = "pre_tokenizer.replacement is not one character"},
    {.name = "ATemplateWithoutTheTextIsRefused",
     .pointer = "/post_processor",
     .value = R"({"type": "TemplateProcessing", "single": [], "special_tokens": {}})",
     .error = "post_processor.single has the text A 0 times"},
    {.name = "ATemplateOfAnUndeclaredTokenIsRefused",
     .pointer = "/post_processor",
     .value = R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}},
        {"Sequence": {"id": "A"}}], "special_tokens": {}})",
     .error = "post_processor.special_tokens.x has no list of 1 to 256 ids"},
    {.name = "ABertTokenWithANegativeIdIsRefused",
     .pointer = "/post_processor",
     .value = R"({"type": "BertProcessing", "sep": ["x", -1], "cls": ["y", 1]})",
     .error = "post_processor.sep is not a list of a token and its id"},
    {.name = "ADecoderOfAnUnknownTypeIsRefused",
     .pointer = "/decoder/type",
     .value = R"("CTC")",
     .error = "decoder.type \"CTC\" is not supported"},
    {.name = "AStripOfANegativeNumberIsRefused",
     .pointer = "/decoder",
     .value = R"({"type": "Strip", "content": " ", "start": -1, "stop": 0})",
     .error = "decoder.start is -1, must be in [0, 1024]"},
    {.name = "AModelOfAnUnknownTypeIsRefused",
     .pointer = "/model/type",
     .value = R"("Neural")",
     .error = "model.type \"Neural\" is not supported"},
    {.name = "DropoutOfMergesIsRefused",
     .pointer = "/model/dropout",
     .value = "0.1",
     .error = "model.dropout makes encoding random"},
    {.name = "AMergeIntoNoTokenIsRefused",
     .pointer = "/model/merges",
     .value = R"(["a c"])",
     .error = "model.merges[0] is not two tokens that make a token"},
    {.name = "AMergeOfOneTokenIsRefused",
     .pointer = "/model/merges",
     .value = R"([["a"]])",
     .error = "model.merges[0] is not two tokens that make a token"},
    {.name = "AnIdOfExactlyTheLimitIsRefused",
     .pointer = "/model/vocab/a",
     .value = "262208",
     .error = "has no unique id, an integer below 262208"},
    {.name = "AnIdOfTwoTokensIsRefused",
     .pointer = "/model/vocab/a",
     .value = "1",
     .error = "has no unique id"},
    {.name = "ANegativeIdInTheVocabularyIsRefused",
     .pointer = "/model/vocab/a",
     .value = "-1",
     .error = "has no unique id"},
    {.name = "AUnigramPieceWithoutScoreIsRefused",
     .pointer = "/model",
     .value = R"({"type": "Unigram", "vocab": [["a", "x"]]})",
     .error = "model.vocab[0] is not a list of a piece"},
    {.name = "AUnigramIdBeyondTheVocabularyIsRefused",
     .pointer = "/model",
     .value = R"({"type": "Unigram", "vocab": [["a", -1.0]], "unk_id": 1})",
     .error = "model.unk_id is 1, must be in [0, 0]"},
    {.name = "ASeparatorWhoseIdIsATextIsRefused",
     .pointer = "/post_processor",
     .value = R"({"type": "BertProcessing", "cls": ["a", 0], "sep": ["b", "1"]})",
     .error = "post_processor.sep is not a list of a token and its id"},
    {.name = "APartOfANegativeTypeIsRefused",
     .pointer = "/post_processor",
     .value =
         R"({"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": -1}}],
        "pair": [], "special_tokens": {}})",
     .error = "post_processor.single post_processor.single.type_id is -1, must be in [0, 65535]"},
    {.name = "APartThatIsNothingIsRefused",
     .pointer = "/post_processor",
     .value = R"({"type": "TemplateProcessing", "single": [{}], "pair": [], "special_tokens": {}})",
     .error = "post_processor.single has a part that is neither Sequence nor SpecialToken"},
    {.name = "APartThatIsATextIsRefused",
     .pointer = "/post_processor",
     .value =
         R"({"type": "TemplateProcessing", "single": ["A"], "pair": [], "special_tokens": {}})",
     .error = "post_processor.single has a part that is neither Sequence nor SpecialToken"},
    {.name = "TheLargestIntegerAsTheIdOfAnAddedTokenIsRefused",
     .pointer = "/added_tokens/0/id",
     .value = "9223372036854775807",
     .error = "added_tokens[0].id is 9223372036854775807, must be in [0, 4194303]"},
    {.name = "ANegativeIdOfAnAddedTokenIsRefused",
     .pointer = "/added_tokens/0/id",
     .value = "-2",
     .error = "added_tokens[0].id is -2, must be in [0, 4194303]"},
};
SLUICE_TABLE(BadTokenizerTable, kBadTokenizerRows);

TEST(RefusalTest, RefusesLongExpressions) {
  EXPECT_TRUE(MakeRegexPattern(std::string(65536, 'a')).ok());
  EXPECT_EQ(MakeRegexPattern(std::string(65537, 'a')).status().message(),
            "has 65537 bytes; the limit is 65536");
  EXPECT_TRUE(MakeRegexPattern("").ok());
}

TEST(RefusalTest, RefusesMoreThan64StepsAndDeepNesting) {
  json many = Small();
  json& steps = many["normalizer"] = {{"type", "Sequence"}, {"normalizers", json::array()}};
  for (int i = 0; i < 64; ++i) steps["normalizers"].push_back({{"type", "NFC"}});
  EXPECT_TRUE(ParseHuggingFace(many.dump(), {}).ok());
  steps["normalizers"].push_back({{"type", "NFC"}});
  EXPECT_THAT(std::string(ParseHuggingFace(many.dump(), {}).status().message()),
              HasSubstr("more than 64 steps"));
  std::string deep = R"({"type": "NFC"})";
  for (int i = 0; i < 40; ++i) deep = R"({"type": "Sequence", "normalizers": [)" + deep + "]}";
  EXPECT_THAT(
      std::string(ParseHuggingFace(R"({"normalizer": )" + deep + "}", {}).status().message()),
      HasSubstr("nested deeper than 32"));
}

TEST(RefusalTest, RefusesTextsThatGrowOrTakeTooLong) {
  json grows = Small();
  json step = {
      {"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(1000, 'a')}};
  grows["normalizer"] = {{"type", "Sequence"}, {"normalizers", {step, step, step}}};
  auto tokenizer = ParseHuggingFace(grows.dump(), {});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->Encode("a").status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_TRUE((*tokenizer)->Encode("b").ok());

  json slow = Small();
  slow["pre_tokenizer"] = {
      {"type", "Split"}, {"pattern", {{"Regex", "(x|xx)+y"}}}, {"behavior", "Isolated"}};
  tokenizer = ParseHuggingFace(slow.dump(), {});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->Encode(std::string(200, 'x')).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE((*tokenizer)->Encode("xxy").ok());
}

TEST(RefusalTest, RefusesUnknownWordsWithoutAnUnknownToken) {
  json words = Small();
  words["model"] = {{"type", "WordLevel"}, {"vocab", {{"a", 0}}}};
  const auto tokenizer = ParseHuggingFace(words.dump(), {});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT((*tokenizer)->Encode("a A").value(), ElementsAre(0, 0));
  EXPECT_EQ((*tokenizer)->Encode("b").status().code(), absl::StatusCode::kFailedPrecondition);
}

// The text repeats one letter a million times: comparing all pairs would take hours.
TEST(RefusalTest, ALongWordIsEncodedWithoutComparingAllPairs) {
  json it = Small();
  it["pre_tokenizer"] = nullptr;
  const auto tokenizer = ParseHuggingFace(it.dump(), {});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  std::string text;
  for (int i = 0; i < 500000; ++i) text += "ab";
  EXPECT_EQ((*tokenizer)->Encode(text)->size(), 500000u);
}

TEST(RefusalTest, SpecialTokensOfOtherFilesControlAddedAndDroppedTokens) {
  SpecialTokens specials;
  specials.bos = "<s>";
  specials.add_bos = true;
  specials.all = {{.content = "<s>"}, {.content = "?"}};
  const auto tokenizer = ParseHuggingFace(Small().dump(), specials);
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_THAT((*tokenizer)->Encode("ab").value(), ElementsAre(4, 2));
  EXPECT_EQ((*tokenizer)->Decode(std::vector<int32_t>{4, 2, 3, 99, -1}), "ab")
      << "special tokens and unknown ids decode to nothing";
}

std::vector<std::filesystem::path> GoldenFiles() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(SLUICE_SOURCE_DIR) +
                                                               "/tests/goldens/tokenizers")) {
    const auto& path = entry.path();
    const bool cases = path.filename() == "cases.json";
    if (!cases && (path.extension() == ".json" || path.extension() == ".model"))
      files.push_back(path);
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string Altered(std::string bytes, std::mt19937_64& random) {
  for (uint64_t changes = 1 + random() % 4; changes > 0 && !bytes.empty(); --changes) {
    const size_t at = random() % bytes.size();
    switch (random() % 4) {
      case 0:
        bytes[at] = static_cast<char>(random());
        break;
      case 1:
        bytes.erase(at, 1 + random() % 8);
        break;
      case 2:
        bytes.insert(at, bytes.substr(random() % bytes.size(), random() % 16));
        break;
      default:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
    }
  }
  return bytes;
}

// Every altered file is refused or gives a tokenizer that works on any text and ids.
TEST(RefusalTest, AlteredFilesAreRefusedOrWork) {
  int accepted = 0;
  for (const std::filesystem::path& path : GoldenFiles()) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream bytes;
    bytes << file.rdbuf();
    for (uint64_t seed = 0; seed < 80; ++seed) {
      SCOPED_TRACE(::testing::Message() << path << " seed " << seed);
      std::mt19937_64 random(seed);
      const std::string altered = Altered(bytes.str(), random);
      const auto tokenizer = path.extension() == ".json" ? ParseHuggingFace(altered, {})
                                                         : ParseSentencePiece(altered, {});
      if (!tokenizer.ok()) continue;
      ++accepted;
      const auto ids = (*tokenizer)->Encode("A text, ﬁne … 1\xFF 你好 <mask> e\u0301");
      if (!ids.ok()) continue;
      for (const int32_t id : *ids) ASSERT_GE(id, 0);
      (*tokenizer)->Decode(*ids);
      std::vector<int32_t> drawn(20);
      for (int32_t& id : drawn) id = static_cast<int32_t>(random() % 800) - 10;
      (*tokenizer)->Decode(drawn);
    }
  }
  EXPECT_GT(accepted, 50);
}

TEST(RefusalTest, BrokenSentencePieceFilesAreRefusedOrWork) {
  const auto refused = [](std::string_view bytes) {
    const auto tokenizer = ParseSentencePiece(bytes, {});
    EXPECT_FALSE(tokenizer.ok());
    return std::string(tokenizer.status().message());
  };
  EXPECT_EQ(refused(""), "has no unknown piece");
  EXPECT_EQ(refused("\x0A\x05"
                    "abc"),
            "the file is not a message of SentencePiece");
  EXPECT_EQ(refused(std::string_view("\x0A\x05\x0A\x01"
                                     "a\x18\x05",
                                     7)),
            "piece 0 has type 5, not supported");
  EXPECT_EQ(refused(std::string_view("\x0A\x05\x0A\x01"
                                     "a\x18\x07",
                                     7)),
            "piece 0 has type 7, not supported");
  EXPECT_EQ(refused(std::string_view("\x0A\x05\x0A\x01"
                                     "a\x18\x00",
                                     7)),
            "piece 0 has type 0, not supported");
  EXPECT_EQ(refused(std::string_view("\x12\x02\x18\x03", 4)),
            "the model type is neither unigram nor bpe");
  EXPECT_EQ(refused(std::string_view("\x1A\x06\x12\x04\xFF\xFF\xFF\xFF", 8)),
            "precompiled_charsmap has an array of 4294967295 bytes in 0");
}

}  // namespace
}  // namespace sluice::tokenize
