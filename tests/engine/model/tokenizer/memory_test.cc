// Tests that the memory of encoding is what the account of the work counts, and is in proportion to
// the text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "base/work_memory.h"
#include "engine/model/tokenizer/hugging_face.h"
#include "tests/support/allocation_counter.h"

namespace sluice::tokenize {
namespace {

using nlohmann::json;

// Memory that is not counted: single pieces, and the table of the tokenizer's last search.
constexpr int64_t kUncounted = 64 << 10;

std::vector<json> Normalizers() {
  return {json(),
          {{"type", "BertNormalizer"}},
          {{"type", "NFKC"}},
          {{"type", "NFD"}},
          {{"type", "Lowercase"}},
          json::parse(R"({"type": "Replace", "pattern": {"String": "a"}, "content": "bbbbbbbb"})"),
          json::parse(R"({"type": "Replace", "pattern": {"Regex": "b"}, "content": "aaaa"})"),
          json::parse(R"({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "x"},
                          {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Strip"}]})")};
}

std::vector<json> PreTokenizers() {
  std::vector<json> all = {json()};
  for (const char* type : {"WhitespaceSplit", "Whitespace", "BertPreTokenizer", "ByteLevel",
                           "Metaspace", "Punctuation", "Digits"}) {
    all.push_back({{"type", type}});
  }
  for (const char* behavior :
       {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"}) {
    all.push_back({{"type", "Split"}, {"pattern", {{"Regex", "a"}}}, {"behavior", behavior}});
  }
  all.push_back({{"type", "Metaspace"}, {"split", false}});
  return all;
}

std::vector<json> Models() {
  return {
      json::parse(R"({"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "?": 3},
                      "merges": ["a b"], "unk_token": "?"})"),
      json::parse(R"({"type": "WordPiece", "vocab": {"[UNK]": 0, "a": 1, "##a": 2, "!": 3}})"),
      json::parse(R"({"type": "Unigram", "vocab": [["a", -1], ["b", -1], ["ab", -1.5], ["?", -3]],
                      "unk_id": 3})"),
  };
}

std::string Drawn(std::mt19937* random, size_t bytes) {
  const char* const kUnits[] = {"!",        "a", "b", "ab",   "a ",           "!a", "\xEF\xB7\xBA",
                                "\xC3\x84", "1", " ", "\xFF", "\xE4\xB8\xAD", "<x>"};
  std::string unit;
  for (size_t i = 0; i <= (*random)() % 4; ++i) unit += kUnits[(*random)() % std::size(kUnits)];
  std::string text;
  while (text.size() < bytes) text += unit;
  return text;
}

const json& OneOf(const std::vector<json>& all, std::mt19937* random) {
  return all[(*random)() % all.size()];
}

absl::Status Refusal(int64_t /*bytes*/) { return absl::ResourceExhaustedError("no room"); }

TEST(TokenizerMemoryTest, IsNoMoreThanWhatTheAccountCounts) {
  const unsigned seed = std::random_device()();
  std::mt19937 random(seed);
  int refused = 0;
  for (int round = 0; round < 40; ++round) {
    json document = {{"normalizer", OneOf(Normalizers(), &random)},
                     {"pre_tokenizer", OneOf(PreTokenizers(), &random)},
                     {"model", OneOf(Models(), &random)},
                     {"added_tokens", json::parse(R"([{"id": 9, "content": "<x>"}])")}};
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", " << document);
    const auto tokenizer = ParseHuggingFace(document.dump(), {});
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    const std::string text = Drawn(&random, 100'000);
    std::vector<ByteRange> ranges;
    MemoryBudget budget(int64_t{1} << (16 + random() % 14));
    const WorkMemoryAccount account(&budget, "a", Refusal);
    const MemoryPeak peak;
    const auto ids = random() % 2 == 0
                         ? (*tokenizer)->EncodeBare(text, Tokenizer::kNoLimit)
                         : (*tokenizer)->EncodeLocated(text, Tokenizer::kNoLimit, &ranges);
    EXPECT_LE(peak.bytes(), budget.used() + WorkMemoryAccount::kFreeBytes + kUncounted)
        << ids.status();
    refused += ids.ok() ? 0 : 1;
    EXPECT_TRUE(ids.ok() || ids.status() == Refusal(0)) << ids.status();
    EXPECT_TRUE(!ids.ok() || ranges.empty() || ranges.size() == ids->size());
  }
  EXPECT_GT(refused, 0);
  EXPECT_LT(refused, 40);
}

// Its pieces together would take more than a hundred bytes for each byte.
TEST(TokenizerMemoryTest, ATextOfMarksTakesTheMemoryOfItsTokens) {
  const json document = {{"normalizer", {{"type", "BertNormalizer"}}},
                         {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
                         {"model", Models()[1]}};
  const auto tokenizer = ParseHuggingFace(document.dump(), {});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const std::string text(1 << 20, '!');
  const MemoryPeak peak;
  const auto ids = (*tokenizer)->EncodeBare(text, Tokenizer::kNoLimit);
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_EQ(ids->size(), text.size());
  // The normalized text, the piece, and the tokens while their list grows.
  const auto bytes = static_cast<int64_t>(text.size());
  EXPECT_LE(peak.bytes(), (2 + 3 * 4) * bytes + kUncounted);
}

// Each of three steps makes a thousand characters of each.
TEST(TokenizerMemoryTest, AnAddedTokenThatTheNormalizerMakesTooLongIsRefused) {
  const json replace = {
      {"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(1000, 'a')}};
  const json document = {
      {"normalizer", {{"type", "Sequence"}, {"normalizers", {replace, replace, replace}}}},
      {"added_tokens", json::parse(R"([{"id": 9, "content": "aa", "normalized": true}])")},
      {"model", Models()[0]}};
  const std::string file = document.dump();
  const MemoryPeak peak;
  const auto tokenizer = ParseHuggingFace(file, {});
  EXPECT_EQ(tokenizer.status(), absl::InvalidArgumentError(
                                    "added_tokens[0].content is refused: the tokenizer makes more "
                                    "than 176 bytes of the text, which is the limit"));
  EXPECT_LT(peak.bytes(), 1 << 20);
}

TEST(TokenizerMemoryTest, ATextThatTheNormalizerMakesTooLongIsRefused) {
  const json document = {
      {"normalizer",
       {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(500, 'a')}}},
      {"model", Models()[0]}};
  const auto tokenizer = ParseHuggingFace(document.dump(), {});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_TRUE((*tokenizer)->EncodeBare("aa", Tokenizer::kNoLimit).ok());
  EXPECT_EQ((*tokenizer)->EncodeBare("aaaaa", Tokenizer::kNoLimit).status(),
            absl::OutOfRangeError("the tokenizer makes more than 2368 bytes of the text, which is "
                                  "the limit"));
}

// Each step puts a space before each piece and splits the piece into more. Without a limit the work
// would double with each step, also if the last step removes everything.
TEST(TokenizerMemoryTest, PiecesThatASequenceMultipliesAreRefused) {
  for (const bool removed : {false, true}) {
    json steps =
        json::array({{{"type", "Split"}, {"pattern", {{"String", ""}}}, {"behavior", "Isolated"}}});
    for (int i = 0; i < 40; ++i) steps.push_back({{"type", "ByteLevel"}});
    if (removed) {
      steps.push_back(
          {{"type", "Split"}, {"pattern", {{"Regex", "[\\s\\S]"}}}, {"behavior", "Removed"}});
    }
    const json document = {
        {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}}},
        {"model", Models()[0]}};
    const auto tokenizer = ParseHuggingFace(document.dump(), {});
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    EXPECT_EQ((*tokenizer)->EncodeBare("\xC3\xA9\xC3\xA9", Tokenizer::kNoLimit).status(),
              absl::OutOfRangeError(
                  "the pre_tokenizer makes more pieces of the text than the limit allows: all "
                  "steps of the tokenizer together may make 64 bytes of each byte, and 2048 more"));
  }
}

TEST(TokenizerMemoryTest, AllAddedTokensTogetherAreLimited) {
  const json replace = {
      {"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(1000, 'a')}};
  json tokens = json::array();
  for (int i = 0; i < 5000; ++i) {
    tokens.push_back({{"id", 10 + i}, {"content", "a" + std::to_string(i)}, {"normalized", true}});
  }
  const json document = {{"normalizer", replace}, {"added_tokens", tokens}, {"model", Models()[0]}};
  EXPECT_THAT(ParseHuggingFace(document.dump(), {}).status().message(),
              testing::HasSubstr("brings the tokens to more than 4194304 bytes"));
}

}  // namespace
}  // namespace sluice::tokenize
