// Tests of long texts: the limits on their work, and its interruption.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "base/interruption.h"
#include "engine/model/tokenizer/hugging_face.h"
#include "engine/model/tokenizer/pattern.h"
#include "tests/support/table.h"

namespace sluice::tokenize {
namespace {

using nlohmann::json;

json Words() {
  return json::parse(R"({
    "pre_tokenizer": {"type": "WhitespaceSplit"},
    "added_tokens": [{"id": 9, "content": "<a longer token>"}],
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "?": 3}, "merges": ["a b"],
              "unk_token": "?"}})");
}

std::unique_ptr<const Tokenizer> Parsed(const json& document) {
  auto tokenizer = ParseHuggingFace(document.dump(), {});
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

std::string Repeated(std::string_view unit, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += unit;
  return text;
}

TEST(LongTextTest, EncodingStopsSoonAfterTheMostTokens) {
  const auto tokenizer = Parsed(Words());
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    std::string text;
    for (int i = 0; i < 300; ++i) text += "ab  "[random() % 4];
    const std::vector<int32_t> all = tokenizer->Encode(text).value();
    const int64_t most = static_cast<int64_t>(random() % 300);
    const std::vector<int32_t> some = tokenizer->Encode(text, most).value();
    ASSERT_EQ(std::ssize(some) > most, std::ssize(all) > most) << text;
    if (std::ssize(some) <= most) {
      ASSERT_EQ(some, all);
    }
    ASSERT_TRUE(std::equal(some.begin(), some.end(), all.begin())) << text;
  }
  std::string words;
  for (int i = 0; i < 100'000; ++i) words += "a ";
  EXPECT_EQ(tokenizer->Encode(words, 64)->size(), 65u);
}

// Returns how often the work on a text with this step checks for an interruption. ICU checks once
// in ten thousand steps.
template <typename Work>
int UnitsOf(Work work) {
  int units = 0;
  const Interruptible scope([&units] {
    ++units;
    return absl::OkStatus();
  });
  work();
  return units;
}

// The expression takes twice as many steps for each further character of a token that it does not
// match.
TEST(LongTextTest, ADecoderTakesFewStepsForAToken) {
  const json replace =
      json::parse(R"({"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": "z"})");
  const std::string hostile = std::string(40, 'a') + "b";
  json document = Words();
  document["model"]["vocab"][hostile] = 4;
  document["model"]["vocab"]["aaa"] = 5;
  document["decoder"] = replace;
  const auto decoding = Parsed(document);
  const int32_t ids[] = {4, 5};
  EXPECT_LE(UnitsOf([&] { EXPECT_EQ(decoding->Decode(ids), hostile + "z"); }), 2);
  document.erase("decoder");
  document["normalizer"] = replace;
  const auto normalizing = Parsed(document);
  EXPECT_GT(UnitsOf([&] { EXPECT_FALSE(normalizing->Encode(hostile).ok()); }), 100)
      << "texts are encoded on separate threads";
}

// Each search reads the rest of the text, because a longer token begins with it.
TEST(LongTextTest, TheBytesOfASearchCountAsSteps) {
  const std::string text(1000, 'x'), longer = text + "y";
  json word_piece = Words();
  word_piece["model"] = {{"type", "WordPiece"},
                         {"unk_token", "?"},
                         {"max_input_chars_per_word", 1'000'000},
                         {"vocab", {{"?", 0}, {"x", 1}, {"##x", 2}, {longer, 3}}}};
  word_piece["model"]["vocab"]["##" + longer] = 4;
  json unigram = Words();
  unigram["model"] = {{"type", "Unigram"},
                      {"vocab", json::array({json::array({"x", -1}), json::array({longer, -1})})}};
  json added = Words();
  added["model"] = {{"type", "WordLevel"}, {"unk_token", "?"}, {"vocab", {{"?", 0}}}};
  added["added_tokens"][0]["content"] = longer;
  for (const json& document : {word_piece, unigram, added}) {
    const auto tokenizer = Parsed(document);
    EXPECT_GT(UnitsOf([&] { EXPECT_TRUE(tokenizer->Encode(text).ok()); }), 100)
        << document["model"]["type"];
  }
}

// ICU moves each mark past all marks before it that have a higher class, which would take minutes.
TEST(LongTextTest, MarksAreSortedInLinearTime) {
  const std::string text = "a" + Repeated("\u0301", 250'000) + Repeated("\u0323", 250'000);
  json document = Words();
  document["added_tokens"] = json::array();
  document["model"] = {{"type", "WordLevel"}, {"unk_token", "?"}, {"vocab", {{"?", 0}, {"a", 1}}}};
  document["normalizer"] = {{"type", "BertNormalizer"}};
  EXPECT_THAT(Parsed(document)->Encode(text).value(), ::testing::ElementsAre(1));
  document["normalizer"] = {{"type", "NFC"}};
  EXPECT_THAT(Parsed(document)->Encode(text).value(), ::testing::ElementsAre(0));
}

// A long text takes many steps in many short searches.
TEST(LongTextTest, TheStepsOfAnExpressionGrowWithTheText) {
  const auto gpt4 =
      MakeRegexPattern(R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
                       R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)");
  ASSERT_TRUE(gpt4.ok()) << gpt4.status();
  const auto matches = [&](const std::string& text) {
    int64_t count = 0;
    const absl::Status status = (*gpt4)->Find(text, [&count](const Span& span) {
      count += span.match ? 1 : 0;
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
    return count;
  };
  EXPECT_EQ(matches(Repeated("123", 666'666)), 666'666);
  EXPECT_EQ(matches(Repeated(" word", 600'000)), 600'000);
  const auto nested = MakeRegexPattern("(a+)+$");
  ASSERT_TRUE(nested.ok()) << nested.status();
  const auto visit = [](const Span&) { return absl::OkStatus(); };
  EXPECT_EQ((*nested)->Find(std::string(40, 'a') + "b", visit).code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(LongTextTest, TheByteTokenizerStopsToo) {
  EXPECT_EQ(MakeByteTokenizer(-1)->Encode(std::string(1000, 'x'), 64)->size(), 65u);
  EXPECT_EQ(MakeByteTokenizer(256)->Encode(std::string(64, 'x'), 64)->size(), 65u);
  EXPECT_EQ(MakeByteTokenizer(-1)->Encode(std::string(64, 'x'), 64)->size(), 64u);
}

TEST(UnknownCharactersTest, AreJoinedOnlyIfTheFileEnablesIt) {
  json document = Words();
  document["model"]["fuse_unk"] = true;
  EXPECT_THAT(Parsed(document)->Encode("axyzab xy").value(), ::testing::ElementsAre(0, 3, 2, 3));
  document["model"]["fuse_unk"] = false;
  EXPECT_THAT(Parsed(document)->Encode("axyzab").value(), ::testing::ElementsAre(0, 3, 3, 3, 2));
}

TEST(WordPieceLimitTest, AWordOfExactlyTheMostCharactersIsEncoded) {
  json document = Words();
  document["added_tokens"] = json::array();
  document["model"] = json::parse(R"({"type": "WordPiece", "max_input_chars_per_word": 4,
                                      "vocab": {"[UNK]": 0, "ä": 1, "##ä": 2}})");
  const auto tokenizer = Parsed(document);
  EXPECT_THAT(tokenizer->Encode("ääää").value(), ::testing::ElementsAre(1, 2, 2, 2));
  EXPECT_THAT(tokenizer->Encode("äääää").value(), ::testing::ElementsAre(0));
}

struct LongestRow {
  const char* name;
  const char* model;
  int64_t longest;
};
class LongestTokenTable : public TableTest<LongestRow> {};

TEST_P(LongestTokenTable, CountsEveryKindOfToken) {
  json document = Words();
  document["model"] = json::parse(row().model);
  EXPECT_EQ(Parsed(document)->longest_token_bytes(), row().longest);
}

const LongestRow kLongestRows[] = {
    {.name = "AnAddedTokenMayBeTheLongest",
     .model = R"({"type": "BPE", "vocab": {"a": 0}, "merges": []})",
     .longest = 16},
    {.name = "ATokenOfTheVocabularyMayBeTheLongest",
     .model = R"({"type": "BPE", "vocab": {"aaaaaaaaaaaaaaaaaaaa": 0}, "merges": []})",
     .longest = 20},
    {.name = "AnUnknownTokenThatStandsForOneCharacterDoesNotCount",
     .model = R"({"type": "BPE", "vocab": {"?": 0}, "merges": [], "unk_token": "?"})",
     .longest = 16},
    {.name = "OneThatJoinsCharactersCounts",
     .model =
         R"({"type": "BPE", "vocab": {"?": 0}, "merges": [], "unk_token": "?", "fuse_unk": true})",
     .longest = 256},
    {.name = "SoDoesTheUnknownWord",
     .model = R"({"type": "WordPiece", "vocab": {"[UNK]": 0}})",
     .longest = 256},
    {.name = "UnigramJoinsUnknownCharacters",
     .model = R"({"type": "Unigram", "vocab": [["?", 0]], "unk_id": 0})",
     .longest = 256},
    {.name = "ByteFallbackLeavesNothingToJoin",
     .model = R"({"type": "Unigram", "vocab": [["?", 0]], "unk_id": 0, "byte_fallback": true})",
     .longest = 16},
};
SLUICE_TABLE(LongestTokenTable, kLongestRows);

struct InterruptedRow {
  const char* name;
  const char* change;       // a JSON merge patch of Words() without added tokens
  const char* unit = "ab";  // the text is this unit many times,
  const char* rest = "";    // and then this one many times
};
class InterruptionTable : public TableTest<InterruptedRow> {};

// A text of one word, so the interruption happens within one piece. Without added tokens, the
// search for them has no steps.
TEST_P(InterruptionTable, StopsInTheMiddleOfAPiece) {
  json document = Words();
  document.erase("added_tokens");
  document.merge_patch(json::parse(row().change));
  const auto tokenizer = Parsed(document);
  const std::string text = Repeated(row().unit, 20'000) + Repeated(row().rest, 20'000);
  int checks = 0;
  const Interruptible scope(
      [&] { return ++checks > 2 ? absl::CancelledError("enough") : absl::OkStatus(); });
  EXPECT_EQ(tokenizer->Encode(text).status(), absl::CancelledError("enough"));
}

const InterruptedRow kInterruptedRows[] = {
    {.name = "TheMergesOfBpe", .change = "{}"},
    {.name = "ThePathsOfUnigram",
     .change = R"({"model": {"type": "Unigram", "merges": null, "unk_token": null,
                             "vocab": [["a", -1], ["b", -1], ["ab", -1.5]]}})"},
    {.name = "OneSearchOfARegularExpression",
     .change = R"({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a|b|ab)+y"},
                                     "behavior": "Isolated"}})"},
    {.name = "ManySearchesOfARegularExpression",
     .change = R"({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "a|b"},
                                     "behavior": "Isolated"}})"},
    {.name = "TheTokensOfWordPiece",
     .change = R"({"model": {"type": "WordPiece", "unk_token": "?", "vocab": {"##a": 4, "##b": 5},
                             "max_input_chars_per_word": 1000000}})"},
    {.name = "TheSearchForAddedTokens",
     .change = R"({"added_tokens": [{"id": 4, "content": "<a token>", "normalized": false}],
                   "model": {"type": "WordLevel", "unk_token": "?"}})"},
    {.name = "TheMarksOfNfc",
     .change = R"({"normalizer": {"type": "NFC"},
                   "model": {"type": "WordLevel", "unk_token": "?"}})",
     .unit = "\u0301",
     .rest = "\u0323"},
    {.name = "TheMarksOfBertNormalizer",
     .change = R"({"normalizer": {"type": "BertNormalizer"},
                   "model": {"type": "WordLevel", "unk_token": "?"}})",
     .unit = "\u0301",
     .rest = "\u0323"},
};
SLUICE_TABLE(InterruptionTable, kInterruptedRows);

}  // namespace
}  // namespace sluice::tokenize
