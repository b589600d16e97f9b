// Tests of long texts: the limits on their work, and its interruption.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "base/interruption.h"
#include "engine/model/tokenizer/hugging_face.h"
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
  const char* change;  // a JSON merge patch of Words()
};
class InterruptionTable : public TableTest<InterruptedRow> {};

// A text of one word, so the interruption happens within one piece.
TEST_P(InterruptionTable, StopsInTheMiddleOfAPiece) {
  json document = Words();
  document.merge_patch(json::parse(row().change));
  const auto tokenizer = Parsed(document);
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += "ab";
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
};
SLUICE_TABLE(InterruptionTable, kInterruptedRows);

}  // namespace
}  // namespace sluice::tokenize
