// Tests of parts of the tokenizers at their limits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/model/tokenizer/charsmap.h"
#include "engine/model/tokenizer/hugging_face.h"
#include "engine/model/tokenizer/pattern.h"
#include "engine/model/tokenizer/sentencepiece.h"
#include "engine/model/tokenizer/traced_text.h"
#include "engine/model/tokenizer/unicode.h"
#include "engine/model/tokenizer/wire.h"
#include "tests/support/table.h"

namespace sluice::tokenize {
namespace {

using ::testing::ElementsAre;

TEST(UnicodeTest, TheRangesOfIdeographsHaveTheirEnds) {
  for (const char32_t point : {U'\u3400', U'\u4DBF', U'\u4E00', U'\u9FFF', U'\uF900', U'\uFAFF',
                               U'\U00020000', U'\U0002A6DF', U'\U0002A700', U'\U0002B81F',
                               U'\U0002B920', U'\U0002CEAF', U'\U0002F800', U'\U0002FA1F'}) {
    EXPECT_TRUE(IsIdeograph(point)) << static_cast<uint32_t>(point);
  }
  for (const char32_t point : {U'\u33FF', U'\u4DC0', U'\u4DFF', U'\uA000', U'\uFB00', U'\U0002A6E0',
                               U'\U0002B820', U'\U0002CEB0', U'\U0002FA20'}) {
    EXPECT_FALSE(IsIdeograph(point)) << static_cast<uint32_t>(point);
  }
}

// A letter, a mark, a digit, a connector and a joiner: each kind makes a word by itself.
TEST(UnicodeTest, WordsHaveCharactersOfEveryKind) {
  for (const char32_t point : {U'a', U'\u0301', U'5', U'_', U'\u200D'}) {
    EXPECT_TRUE(IsWord(point)) << static_cast<uint32_t>(point);
  }
  for (const char32_t point : {U'-', U' ', U'\u200B'}) {
    EXPECT_FALSE(IsWord(point)) << static_cast<uint32_t>(point);
  }
}

// The marks of a part are of several classes, and some of them compose with letters. Some parts are
// long enough for the marks to be sorted here.
TEST(NormalizeTest, LongRunsOfMarksGiveTheResultOfIcu) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  constexpr char32_t kCharacters[] = {0x301, 0x323, 0x300, 0x327, 0x345, 0x3099, 0x344,  0x1D165,
                                      0x9BE, 0x334, 0x5B0, 0x94D, 0x302, 0x1161, 0x11A8, 0xF71};
  constexpr char32_t kLetters[] = {'a',   0xE9,   0x1EA5, 0x1100, 0xAC00,
                                   0x9C7, 0xFB01, 0x304B, 0x212B};
  for (int round = 0; round < 60; ++round) {
    std::string text;
    for (int part = 0; part < 3; ++part) {
      AppendUtf8(kLetters[random() % std::size(kLetters)], &text);
      for (uint32_t marks = random() % 1500; marks > 0; --marks) {
        AppendUtf8(kCharacters[random() % std::size(kCharacters)], &text);
      }
    }
    for (const NormalForm form :
         {NormalForm::kC, NormalForm::kD, NormalForm::kKC, NormalForm::kKD}) {
      TextBuilder expected;
      Normalize(text, form, &expected);
      for (const bool traced : {false, true}) {
        const auto before = OriginalText(text, traced);
        ASSERT_TRUE(before.ok()) << before.status();
        const auto normal = NormalizeTraced(*before, form);
        ASSERT_TRUE(normal.ok()) << normal.status();
        ASSERT_EQ(normal->text, expected.text()) << static_cast<int>(form) << " of " << text;
        ASSERT_EQ(normal->sources.size(), traced ? normal->text.size() : 0);
      }
    }
  }
}

// Field 1 is a varint of 5, field 2 the float 1, field 3 the text "x".
TEST(WireReaderTest, AFieldKeepsNothingOfThePreviousOne) {
  WireReader reader(std::string_view("\x08\x05\x15\x00\x00\x80\x3F\x1A\x01x", 10));
  ASSERT_TRUE(reader.Next());
  EXPECT_EQ(reader.integer(), 5u);
  ASSERT_TRUE(reader.Next());
  EXPECT_EQ(reader.real(), 1.0f);
  EXPECT_TRUE(reader.bytes().empty());
  ASSERT_TRUE(reader.Next());
  EXPECT_EQ(reader.bytes(), "x");
  EXPECT_EQ(reader.integer(), 0u);
  EXPECT_FALSE(reader.Next());
  EXPECT_TRUE(reader.ok());
}

TEST(CharsmapTest, AnArrayMayEndWithTheBlob) {
  const std::string size("\x04\0\0\0", 4);
  EXPECT_TRUE(Charsmap::Parse(size + std::string(4, '\0')).ok());
  EXPECT_FALSE(Charsmap::Parse(size + std::string(3, '\0')).ok());
}

// The walk leaves each array at its end: from the root, and from a leaf to its value. The library's
// assertions, or a sanitizer, detect an access after it.
TEST(CharsmapTest, AWalkEndsAtTheEndOfTheArray) {
  const uint32_t label = 1, leaf = 1 << 8, offset_3 = 3 << 10;
  for (const std::vector<uint32_t>& units :
       {std::vector<uint32_t>{0}, std::vector<uint32_t>{0, label | leaf | offset_3}}) {
    const auto bytes = static_cast<uint32_t>(units.size() * sizeof(uint32_t));
    std::string blob(sizeof(bytes) + bytes, '\0');
    std::memcpy(blob.data(), &bytes, sizeof(bytes));
    std::memcpy(blob.data() + sizeof(bytes), units.data(), bytes);
    EXPECT_FALSE(Charsmap::Parse(blob).value().Longest("\x01").has_value());
  }
}

TEST(DecoderTest, StripTakesFromBothEnds) {
  const auto tokenizer = ParseHuggingFace(R"({
    "model": {"type": "BPE", "vocab": {"..a...": 0, "b": 1}, "merges": []},
    "decoder": {"type": "Strip", "content": ".", "start": 1, "stop": 2}})",
                                          {});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->Decode(std::vector<int32_t>{0, 1}), ".a.b");
}

TEST(BpeTest, TheFirstCharacterOfAPieceMayBeBytes) {
  const auto tokenizer = ParseHuggingFace(R"({
    "model": {"type": "BPE", "vocab": {"<0xC3>": 0, "<0xA9>": 1, "a": 2}, "merges": [],
              "byte_fallback": true}})",
                                          {});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT((*tokenizer)
                  ->Encode("\xC3\xA9"
                           "a\xC3\xA9")
                  .value(),
              ElementsAre(0, 1, 2, 0, 1));
}

// Returns the ids of the text by a tokenizer whose file consists of `members`.
std::vector<int32_t> IdsBy(const std::string& members, std::string_view text) {
  const auto tokenizer = ParseHuggingFace("{" + members + "}", {});
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? (*tokenizer)->Encode(text).value() : std::vector<int32_t>();
}

TEST(BpeTest, OnlyNeighboursThatAreUnknownAreFused) {
  const std::string model = R"("model": {"type": "BPE", "vocab": {"a": 0, "?": 1}, "merges": [],
                               "unk_token": "?", "fuse_unk": )";
  EXPECT_THAT(IdsBy(model + "true}", "xyaz"), ElementsAre(1, 0, 1));
  EXPECT_THAT(IdsBy(model + "false}", "xyaz"), ElementsAre(1, 1, 0, 1));
}

TEST(BpeTest, AffixesAreOfInnerAndLastCharacters) {
  EXPECT_THAT(IdsBy(R"("model": {"type": "BPE", "vocab": {"a": 0, "#a": 1, "a$": 2, "#a$": 3,
                       "#aa$": 4}, "merges": ["#a #a$"], "continuing_subword_prefix": "#",
                       "end_of_word_suffix": "$"})",
                    "aaa"),
              ElementsAre(0, 4));
}

TEST(BpeTest, AZeroDropoutIsAccepted) {
  EXPECT_THAT(
      IdsBy(R"("model": {"type": "BPE", "vocab": {"a": 0}, "merges": [], "dropout": 0.0})", "a"),
      ElementsAre(0));
}

TEST(WordPieceTest, AWordOfTheMostCharactersIsSplit) {
  const std::string model = R"("model": {"type": "WordPiece", "unk_token": "?",
      "max_input_chars_per_word": 3, "vocab": {"\u00e9": 0, "##\u00e9": 1, "?": 2}})";
  EXPECT_THAT(IdsBy(model, "ééé"), ElementsAre(0, 1, 1));
  EXPECT_THAT(IdsBy(model, "éééé"), ElementsAre(2));
}

// The first word is known up to its last character.
TEST(WordPieceTest, AnUnknownWordLeavesNoPartialTokens) {
  EXPECT_THAT(IdsBy(R"("pre_tokenizer": {"type": "WhitespaceSplit"}, "model": {"type": "WordPiece",
                       "unk_token": "?", "vocab": {"a": 0, "##a": 1, "?": 2}})",
                    "a aab aa"),
              ElementsAre(0, 2, 0, 1));
}

TEST(UnigramTest, ARunOfUnknownCharactersIsOneTokenAndTheNextRunAnother) {
  EXPECT_THAT(IdsBy(R"("model": {"type": "Unigram", "unk_id": 0, "vocab": [["?", 0], ["a", -1]]})",
                    "xyazz"),
              ElementsAre(0, 1, 0));
}

TEST(UnigramTest, TheFirstOfEqualPathsIsKept) {
  EXPECT_THAT(
      IdsBy(R"("model": {"type": "Unigram", "vocab": [["a", -1], ["b", -2], ["ab", -3]]})", "ab"),
      ElementsAre(2));
}

TEST(SubwordModelTest, AnOldFileHasNoType) {
  EXPECT_THAT(IdsBy(R"("model": {"unk_token": "?", "vocab": {"a": 0, "##a": 1, "?": 2}})", "aaxa"),
              ElementsAre(2));
  EXPECT_THAT(IdsBy(R"("model": {"vocab": {"a": 0, "aa": 1}, "merges": ["a a"]})", "aaa"),
              ElementsAre(1, 0));
  EXPECT_THAT(IdsBy(R"("model": {"vocab": [["a", -1], ["aa", -1.5]]})", "aaa"), ElementsAre(0, 1));
  EXPECT_FALSE(ParseHuggingFace(R"({"model": {}})", {}).ok());
}

// Returns a piece of a SentencePiece file.
std::string PieceOf(std::string_view text, float score, char type) {
  std::string piece = absl::StrCat("\x0A", std::string(1, static_cast<char>(text.size())),
                                   std::string(text), "\x15");
  piece.append(reinterpret_cast<const char*>(&score), sizeof score);
  piece += std::string("\x18") + type;
  return absl::StrCat("\x0A", std::string(1, static_cast<char>(piece.size())), piece);
}

// An unknown character scores 10 less than the lowest normal piece, regardless of other pieces.
TEST(SentencePieceTest, TheScoreOfUnknownCharactersFollowsNormalPieces) {
  constexpr char kNormal = 1, kUnknown = 2;
  const std::string no_space_before("\x1A\x02\x18\x00", 4);
  const auto tokenizer =
      ParseSentencePiece(PieceOf("<unk>", 0, kUnknown) + PieceOf("a", -1, kNormal) +
                             PieceOf("xa", -11.5, kNormal) + no_space_before,
                         {});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT((*tokenizer)->Encode("xa").value(), ElementsAre(2));
}

// A user-defined piece of two bytes scores 0.1. The results are SentencePiece's, version 0.2.3.
TEST(SentencePieceTest, UserDefinedPiecesArePreferredToLowerScores) {
  constexpr char kNormal = 1, kUnknown = 2, kUserDefined = 4;
  const std::string no_space_before("\x1A\x02\x18\x00", 4);
  const auto tokenizer = ParseSentencePiece(
      PieceOf("<unk>", 0, kUnknown) + PieceOf("a", -1, kNormal) + PieceOf("b", -1, kNormal) +
          PieceOf("abc", -0.875f, kNormal) + PieceOf("c", -1, kNormal) +
          PieceOf("ab", 0, kUserDefined) + PieceOf("abd", -0.9375f, kNormal) +
          PieceOf("d", -1, kNormal) + no_space_before,
      {});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT((*tokenizer)->Encode("ab").value(), ElementsAre(5));
  EXPECT_THAT((*tokenizer)->Encode("abd").value(), ElementsAre(5, 7));
  EXPECT_THAT((*tokenizer)->Encode("abc").value(), ElementsAre(3));
}

// The results are SentencePiece's, version 0.2.3. If sums were compared before they are rounded,
// the first one would be "1111" and "1". If the score of unknown characters were not rounded, the
// second one would be "xa".
TEST(SentencePieceTest, SumsOfScoresAreComparedInSinglePrecision) {
  constexpr char kNormal = 1, kUnknown = 2;
  const std::string unknown = PieceOf("<unk>", 0, kUnknown);
  const std::string no_space_before("\x1A\x02\x18\x00", 4);
  const auto ones = ParseSentencePiece(
      unknown + PieceOf("1", -1.1f, kNormal) + PieceOf("1111", -2.2f, kNormal) + no_space_before,
      {});
  ASSERT_TRUE(ones.ok()) << ones.status();
  EXPECT_THAT((*ones)->Encode("11111").value(), ElementsAre(1, 2));
  const auto letters = ParseSentencePiece(
      unknown + PieceOf("a", 10, kNormal) + PieceOf("xa", -0.2f, kNormal) + no_space_before, {});
  ASSERT_TRUE(letters.ok()) << letters.status();
  EXPECT_THAT((*letters)->Encode("xa").value(), ElementsAre(0, 1));
}

TEST(UnigramTest, SumsOfScoresHaveDoublePrecision) {
  EXPECT_THAT(IdsBy(R"("model": {"type": "Unigram",
                       "vocab": [["a", -1], ["b", -2], ["ab", -3.000000001]]})",
                    "ab"),
              ElementsAre(0, 1));
}

TEST(SentencePieceTest, TheSpaceBeforeATextIsEscapedOnlyIfTheFileEscapesSpaces) {
  constexpr char kNormal = 1, kUnknown = 2;
  const std::string pieces = PieceOf("<unk>", 0, kUnknown) + PieceOf("a", -1, kNormal) +
                             PieceOf(" ", -2, kNormal) + PieceOf("\u2581", -2, kNormal);
  const std::string not_escaped("\x1A\x02\x28\x00", 4), suffix("\x12\x03\xC0\x01\x01", 5);
  const auto ids = [&](const std::string& settings) {
    const auto tokenizer = ParseSentencePiece(pieces + settings, {});
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    return tokenizer.ok() ? (*tokenizer)->Encode("a").value() : std::vector<int32_t>();
  };
  EXPECT_THAT(ids(""), ElementsAre(3, 1));
  EXPECT_THAT(ids(not_escaped), ElementsAre(2, 1));
  EXPECT_THAT(ids(suffix), ElementsAre(1, 3));
  EXPECT_THAT(ids(not_escaped + suffix), ElementsAre(1, 2));
}

TEST(SentencePieceTest, TheTextOfAnUnknownTokenIsLimitedAndCounts) {
  constexpr char kUnknown = 2;
  const auto parsed = [](int bytes) {
    const std::string text(bytes, 'u');
    // Field 44 of the trainer's settings, with a length of two bytes.
    const auto varint = [](size_t size) {
      return std::string{static_cast<char>(size % 128 + 128), static_cast<char>(size / 128)};
    };
    const std::string field = "\xE2\x02" + varint(text.size()) + text;
    return ParseSentencePiece(PieceOf("<unk>", 0, kUnknown) + "\x12" + varint(field.size()) + field,
                              {});
  };
  const auto longest = parsed(1024);
  ASSERT_TRUE(longest.ok()) << longest.status();
  EXPECT_EQ((*longest)->Decode(std::vector<int32_t>{0}).size(), 1024u);
  EXPECT_EQ((*longest)->longest_token_bytes(), 256);
  EXPECT_EQ((*longest)->longest_decoded_bytes(), 1024);
  EXPECT_EQ(parsed(1025).status().message(), "unk_surface has 1025 bytes; the limit is 1024");
}

// The longest token is "aaa", of three bytes.
TEST(DecoderTest, TheTextsThatReplaceAddsCount) {
  const auto most = [](const std::string& steps) {
    const auto tokenizer = ParseHuggingFace(
        absl::StrCat(R"({"model": {"type": "BPE", "vocab": {"aaa": 0}, "merges": []},
                         "decoder": {"type": "Sequence", "decoders": [)",
                     steps, "]}}"),
        {});
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    if (!tokenizer.ok()) return std::pair<int64_t, size_t>();
    const auto decoded = (*tokenizer)->Decode(std::vector<int32_t>{0});
    return std::pair((*tokenizer)->longest_decoded_bytes(), decoded.size());
  };
  using ::testing::Pair;
  const auto replace = [](const char* pattern, const char* content) {
    return absl::StrCat(R"({"type": "Replace", "pattern": {)", pattern, R"(}, "content": ")",
                        content, R"("})");
  };
  EXPECT_THAT(most(R"({"type": "Fuse"})"), Pair(3, 3));
  EXPECT_THAT(most(replace(R"("String": "a")", "")), Pair(3, 0));
  EXPECT_THAT(most(replace(R"("String": "a")", "bbbb")), Pair(12, 12));
  EXPECT_THAT(most(replace(R"("String": "aa")", "bbb")), Pair(5, 4));
  EXPECT_THAT(most(replace(R"("Regex": "x*")", "bb")), Pair(11, 11));
  EXPECT_THAT(most(replace(R"("String": "a")", "bb") + ", " + replace(R"("String": "b")", "cc")),
              Pair(12, 12));
}

struct AddedTokenRow {
  const char* name;
  const char* flags;  // of the token "|"
  const char* text;
  const char* decoded;
};
class AddedTokenTable : public TableTest<AddedTokenRow> {};

TEST_P(AddedTokenTable, TakesItsSpaces) {
  const std::string file = R"({"added_tokens": [{"id": 2, "content": "|")" +
                           std::string(row().flags) +
                           R"(}], "decoder": {"type": "Fuse"}, "model": {"type": "BPE",
                              "vocab": {"a": 0, " ": 1}, "merges": []}})";
  const auto tokenizer = ParseHuggingFace(file, {});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->Decode((*tokenizer)->Encode(row().text).value()), row().decoded);
}

const AddedTokenRow kAddedTokenRows[] = {
    {"ItStandsAlone", "", "a  |  a", "a  |  a"},
    {"ItTakesSpacesBefore", R"(, "lstrip": true)", "a  |  |  a", "a||  a"},
    {"ItTakesSpacesBehind", R"(, "rstrip": true)", "a  |  |  a", "a  ||a"},
    {"ItTakesSpacesAtTheEnds", R"(, "lstrip": true, "rstrip": true)", "  |  ", "|"},
    {"AWordIsNotCut", R"(, "single_word": true)", "a|a", "aa"},
    {"AWordAfterItIsNotCut", R"(, "single_word": true)", "|a", "a"},
    {"AWordBeforeItIsNotCut", R"(, "single_word": true)", "a|", "a"},
    {"ItIsAWordOfItsOwn", R"(, "single_word": true)", "a |", "a |"},
};
SLUICE_TABLE(AddedTokenTable, kAddedTokenRows);

TEST(AddedTokensTest, ASpecialTokenThatTheFileLacksGetsTheNextIdIfTheModelHasIt) {
  SpecialTokens specials;
  specials.all = {{.content = "<new>"}, {.content = "<nowhere>"}, {.content = "b"}};
  specials.vocab_size = 4;
  const auto tokenizer = ParseHuggingFace(R"({
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "?": 2}, "merges": [], "unk_token": "?"}})",
                                          specials);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->Encode("a<new>b").value(), (std::vector<int32_t>{0, 3, 1}));
  const auto ids = (*tokenizer)->Encode("a<nowhere>b");
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_THAT(*ids, ::testing::Each(::testing::Ge(0)));
  EXPECT_EQ(ids->front(), 0);
  EXPECT_EQ(ids->back(), 1);
}

// The ids are those of the library.
TEST(AddedTokensTest, IdsOfTheFileDoNotCount) {
  std::vector<std::string> warnings;
  const auto tokenizer = ParseHuggingFace(R"({
    "added_tokens": [{"id": 7, "content": "b"}, {"id": 9, "content": "zz"},
                     {"id": 4, "content": "q"}, {"id": 5, "content": ""},
                     {"id": 6, "content": "zz", "special": true}],
    "model": {"type": "WordLevel", "vocab": {"?": 0, "a": 1, "b": 2}, "unk_token": "?"}})",
                                          {}, &warnings);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT((*tokenizer)->Encode("azzbq").value(), ElementsAre(1, 3, 2, 4));
  EXPECT_EQ((*tokenizer)->Decode(std::vector<int32_t>{1, 3, 2, 4}), "a b q");
  EXPECT_THAT(warnings, ElementsAre(::testing::StartsWith(
                            "added_tokens of tokenizer.json: \"b\" has id 7, but gets id 2, and 2 "
                            "others; ")));
}

TEST(AddedTokensTest, OneIdOfTwoTokensIsRefused) {
  const auto tokenizer = ParseHuggingFace(R"({
    "added_tokens": [{"id": 2, "content": "b"}, {"id": 3, "content": "c"}],
    "model": {"type": "WordLevel", "vocab": {"a": 0, "b": 2}}})",
                                          {});
  EXPECT_THAT(std::string(tokenizer.status().message()),
              ::testing::HasSubstr("added_tokens[1].id is 2 as another's"));
}

// The texts are those of the library, version 0.23.
TEST(AddedTokensTest, ANormalizedTokenDecodesToItsNormalizedText) {
  const auto decoded = [](const std::string& normalizer, const char* flags) {
    const auto tokenizer = ParseHuggingFace(
        absl::StrCat(R"({"normalizer": )", normalizer,
                     R"(, "added_tokens": [{"id": 1, "content": "Add", )", flags,
                     R"(}], "model": {"type": "WordLevel", "vocab": {"?": 0}, "unk_token": "?"}})"),
        {});
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    if (!tokenizer.ok()) return std::string();
    EXPECT_EQ((*tokenizer)->IdOf("Add"), 1);
    EXPECT_THAT((*tokenizer)->Encode("Add").value(), ElementsAre(1));
    return (*tokenizer)->Decode(std::vector<int32_t>{1});
  };
  const std::string lowercase = R"({"type": "Lowercase"})";
  EXPECT_EQ(decoded(lowercase, R"("normalized": true)"), "add");
  EXPECT_EQ(decoded(lowercase, R"("normalized": false)"), "Add");
  EXPECT_EQ(decoded(R"({"type": "Prepend", "prepend": "_"})", R"("normalized": true)"), "_Add");
}

// Matches of an expression, separated by "|"; the values are those of the library.
struct ExpressionRow {
  const char* name;
  const char* expression;
  const char* text;
  const char* matches;
};
class ExpressionTable : public TableTest<ExpressionRow> {};
TEST_P(ExpressionTable, HasTheMeaningOfOniguruma) {
  const auto pattern = MakeRegexPattern(row().expression);
  ASSERT_TRUE(pattern.ok()) << pattern.status();
  const std::string_view text = row().text;
  std::string matches;
  const absl::Status status = (*pattern)->Find(text, [&](const Span& span) {
    if (!span.match) return absl::OkStatus();
    if (!matches.empty()) matches += "|";
    matches += text.substr(span.begin, span.end - span.begin);
    return absl::OkStatus();
  });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(matches, row().matches);
}
const ExpressionRow kExpressionRows[] = {
    {"ACaretBeginsALine", "^ +", " a\n  b", " |  "},
    {"ADollarEndsALine", "b+$", "ab\nabb", "b|bb"},
    {"OnlyALineFeedEndsALine", "a$", "a\ra\x0b", ""},
    {"TheDotMatchesACarriageReturn", "a.b", "a\rb", "a\rb"},
    {"ASlashZEndsTheText", "a\\z", "a\na", "a"},
    {"ASlashCapitalZIsBeforeALineFeedOnly", "a\\Z", "a\r\n", ""},
    {"ASlashCapitalZIsBeforeTheLastLineFeed", "a\\Z", "a\na\n", "a"},
    {"AnIntervalIsNotPossessive", "a{1,2}+a", "aaaa", "aaaa"},
    {"AnExactIntervalMayBeOptional", "ba{2}?", "b baa", "b|baa"},
    {"ARangeMayBeReluctant", "a{1,3}?", "aaa", "a|a|a"},
    {"ALowerBoundMayBeAbsent", "ba{,2}", "b baaa", "b|baa"},
    {"AGroupIsRepeatedAsAWhole", "(ab){2}+c", "ababababc", "ababababc"},
    {"ABraceMayBeLiteral", "{a}", "{a}", "{a}"},
    {"SlashHIsAHexadecimalDigit", "\\h+", "x1Fg", "1F"},
    {"SlashCapitalHIsAnyOtherCharacter", "\\H+", "1xF", "x"},
    {"SlashHInASet", "[\\hz]+", "xyz9f", "z9f"},
    {"PunctuationIncludesSymbols", "[[:punct:]]+", "a$+<=>^`|~!\u20acb", "$+<=>^`|~!\u20ac"},
    {"AJoinerIsNotPartOfAWord", "\\w+", "a\u200cb", "a|b"},
    {"AWordEndsBeforeAFormatCharacter", "a\\b", "a\u200ba", "a|a"},
    {"WithinAWordThereIsNoBoundary", "a\\Ba", "aa a", "aa"},
    {"NoEmptyMatchFollowsAMatch", "x*", "ax", "x"},
    {"NegatedPunctuation", "[^[:punct:]]+", "$ab~", "ab"},
    {"APropertyHasNoSymbols", "\\p{Punct}+", "a$!b", "!"},
    {"ANegatedProperty", "\\p{^L}+", "a1b", "1"},
    {"TheOptionMMakesTheDotMatchLineFeeds", "(?m)a.b", "a\nb", "a\nb"},
    {"OptionsOfAGroup", "(?i:A)b", "ab AB", "ab"},
    {"ASuperscriptIsPartOfAWord", "\\w+", "a\u00b2-\u00bd", "a\u00b2|\u00bd"},
    {"InASetASuperscriptIsNotPartOfAWord", "[\\w]+", "a\u00b2b", "a|b"},
    {"ASuperscriptIsNotOutsideOfWords", "\\W+", "a\u00b2-", "-"},
    {"AWordEndsAfterASuperscript", "\u00b2\\b", "\u00b2 ", "\u00b2"},
    {"ADollarInASetIsLiteral", "[$]", "a$", "$"},
    {"ACodePointInBraces", "\\x{e9}+|[\\x{4e00}-\\x{9fff}]|\\x41", "a\u00e9\u00e9\u4e2dA",
     "\u00e9\u00e9|\u4e2d|A"},
    {"AHexadecimalPropertyIsOfAscii", "\\p{XDigit}+", "a1\uff21F", "a1|F"},
    {"AHexadecimalPropertyInASet", "[\\p{x_digit}z]+", "z1\uff21F", "z1|F"},
    {"AWordPropertyHasSuperscripts", "\\p{Word}+", "a\u00b2\u200cb", "a\u00b2|b"},
    {"AWordPropertyInASetHasNone", "[\\p{Word}]+", "a\u00b2\u200cb", "a|b"},
    {"ANegatedWordProperty", "\\P{Word}+|\\p{^word}", "a\u200c b", "\u200c "},
    {"AClassOfWords", "[[:word:]]+", "a\u200cb", "a|b"},
    {"APropertyKeepsItsCase", "(?i)b\\p{Lu}+", "BAa bA", "BA|bA"},
    {"APropertyInASetLosesItsCase", "(?i)b[\\p{Lu}]+", "BAa bA", "BAa|bA"},
    {"APropertyKeepsItsCaseInAGroupOnly", "(?i:b\\p{Lu})\\p{Lu}", "BAA bAA bAa", "BAA|bAA"},
    {"OptionsHoldForTheAlternatives", "a(?i)b|c", "aC ab aB c", "aC|ab|aB"},
    {"OptionsEndWithTheGroup", "(?:a(?i)b|c)d", "aBd aCd aCD", "aBd|aCd"},
    {"AnAndBetweenMembersIsLiteral", "[a&b]+", "a&b", "a&b"},
    {"TwoAndsIntersect", "[a-z&&[^b]]+", "abc", "a|c"},
};
SLUICE_TABLE(ExpressionTable, kExpressionRows);

TEST(ExpressionTest, ConstructsWithoutEquivalentAreRefused) {
  for (const char* const expression :
       {"\\K", "\\g<a>", "(?~a)", "\\N", "(?s)a", "\\xC3\\xA9", "[\\x80-\\xFF]", "\\x{}",
        "[a-c--b]", "[a-z-[b]]", "[a&[b]]"}) {
    const auto pattern = MakeRegexPattern(expression);
    ASSERT_FALSE(pattern.ok()) << expression;
    EXPECT_THAT(std::string(pattern.status().message()),
                ::testing::HasSubstr("has no equivalent in ICU"));
  }
}

TEST(ExpressionTest, AnEmptyExpressionSplitsIntoCharacters) {
  const auto tokenizer = ParseHuggingFace(R"({
    "pre_tokenizer": {"type": "Split", "pattern": {"String": ""}, "behavior": "Isolated"},
    "model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "ab": 2}}})",
                                          {});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->Encode("ab").value(), (std::vector<int32_t>{0, 1}));
}

std::string TokensAndPlaces(const char* file, std::string_view text) {
  const auto tokenizer = ParseHuggingFace(file, {});
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  if (!tokenizer.ok()) return "";
  std::vector<ByteRange> ranges;
  const auto ids = (*tokenizer)->EncodeLocated(text, Tokenizer::kNoLimit, &ranges);
  EXPECT_TRUE(ids.ok()) << ids.status();
  std::string shown;
  for (size_t i = 0; i < ranges.size(); ++i) {
    absl::StrAppend(&shown, (*ids)[i], ":", ranges[i].begin, "-", ranges[i].end, " ");
  }
  return shown;
}

TEST(PlacesOfUnknownTest, EachUnknownCharacterHasItsPlaceIfTheModelDoesNotFuse) {
  constexpr char kNotFused[] = R"({"model": {"type": "BPE", "vocab": {"?": 0, "a": 1},
    "merges": [], "unk_token": "?", "fuse_unk": false}})";
  constexpr char kFused[] = R"({"model": {"type": "BPE", "vocab": {"?": 0, "a": 1},
    "merges": [], "unk_token": "?", "fuse_unk": true}})";
  constexpr char kUnigram[] = R"({"model": {"type": "Unigram", "unk_id": 0,
    "vocab": [["?", 0], ["a", -1]]}})";
  EXPECT_EQ(TokensAndPlaces(kNotFused, "xéayz"), "0:0-1 0:1-3 1:3-4 0:4-5 0:5-6 ");
  EXPECT_EQ(TokensAndPlaces(kFused, "xéayz"), "0:0-3 1:3-4 0:4-6 ");
  EXPECT_EQ(TokensAndPlaces(kUnigram, "xéa"), "0:0-3 1:3-4 ");
}

// A tokenizer of whole words with one normalizer and one pre-tokenizer, its text, and the ids and
// the places of the tokens. The right values are those of the library `tokenizers` 0.23.
struct PlaceRow {
  const char* name;
  const char* normalizer;
  const char* pre_tokenizer;
  const char* vocab;
  const char* text;
  const char* tokens;
};
class PlaceTable : public TableTest<PlaceRow> {};
TEST_P(PlaceTable, GivesTheTokensAndPlacesOfTheLibrary) {
  const std::string file = absl::StrCat(
      R"({"normalizer": )", row().normalizer, R"(, "pre_tokenizer": )", row().pre_tokenizer,
      R"(, "model": {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 9, )", row().vocab,
      "}}}");
  EXPECT_EQ(TokensAndPlaces(file.c_str(), row().text), row().tokens);
}
const PlaceRow kPlaceRows[] = {
    {"APrefixHasNoPlace",
     R"({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "_"},
         {"type": "Replace", "pattern": {"String": " "}, "content": "_"}]})",
     R"({"type": "Split", "pattern": {"String": "_"}, "behavior": "MergedWithNext",
         "invert": false})",
     R"("_a": 0, "_b": 1)", "a b", "0:0-1 1:2-3 "},
    {"APrefixWithATokenHasNoPlace", R"({"type": "Prepend", "prepend": "_"})",
     R"({"type": "Split", "pattern": {"String": "_"}, "behavior": "Isolated", "invert": false})",
     R"("_": 0, "a": 1)", "a", "0:-1--1 1:0-1 "},
    {"AComposedCharacterHasThePlaceOfItsLetter", R"({"type": "NFC"})",
     R"({"type": "WhitespaceSplit"})", R"("\u00e9": 0)", "e\u0301 e\u0301", "0:0-1 0:4-5 "},
    {"DecomposedPartsHaveThePlaceOfTheCharacter", R"({"type": "NFD"})",
     R"({"type": "Split", "pattern": {"String": ""}, "behavior": "Isolated", "invert": false})",
     R"("e": 0, "\u0301": 1)", "\u00e9e", "0:0-2 1:0-2 0:2-3 "},
    {"MarksAreSorted", R"({"type": "NFD"})", R"({"type": "WhitespaceSplit"})",
     R"("a\u0323\u0302": 0)", "a\u0302\u0323", "0:0-5 "},
    {"SyllablesAreComposed", R"({"type": "NFKC"})", R"({"type": "WhitespaceSplit"})",
     R"("\ud55c": 0)", "x \u1112\u1161\u11ab", "9:0-1 0:2-5 "},
    {"StrippedSpacesMoveThePlaces", R"({"type": "Strip"})", R"({"type": "WhitespaceSplit"})",
     R"("a": 0, "b": 1)", "  a b ", "0:2-3 1:4-5 "},
    {"AReplacementHasThePlaceOfTheLastCharacter",
     R"({"type": "Replace", "pattern": {"Regex": "xy+"}, "content": "b"})",
     R"({"type": "WhitespaceSplit"})", R"("b": 0)", "xyy xy", "0:2-3 0:5-6 "},
    {"NmtDropsControlsAndMakesSpaces", R"({"type": "Nmt"})", R"({"type": "WhitespaceSplit"})",
     R"("ab": 0, "c": 1)",
     "a\x01"
     "b\u009f\u200bc\u2581",
     "0:0-3 1:8-9 "},
    {"BytesOfANormalizerHaveThePlaceOfTheirCharacter", R"({"type": "ByteLevel"})",
     R"({"type": "Split", "pattern": {"String": ""}, "behavior": "Isolated", "invert": false})",
     R"("\u00c3": 0, "\u00a9": 1, "\u0120": 2)", "\u00e9 ", "0:0-2 1:0-2 2:-1--1 "},
    {"ADelimiterIsRemoved", "null", R"({"type": "CharDelimiterSplit", "delimiter": "e"})",
     R"("a": 0, "b": 1)", "aebee", "0:0-1 1:2-3 "},
    {"PiecesHaveAFixedLength", "null", R"({"type": "FixedLength", "length": 2})",
     R"("a\u00e9": 0, "b": 1)", "a\u00e9b", "0:0-3 1:3-4 "},
    {"ScriptsAreSeparated", "null", R"({"type": "UnicodeScripts"})",
     R"("a b": 0, "\u0436": 1, "!": 2)", " a b\u0436!", "0:1-4 1:4-6 2:6-7 "},
    {"KanaAndHanAreOneScript", "null", R"({"type": "UnicodeScripts"})",
     R"("\u3042\u6f22\u30fc": 0, "x": 1)", "\u3042\u6f22\u30fcx", "0:0-9 1:9-10 "},
    {"BytesOfBytesAreNotFollowed", "null",
     R"({"type": "Sequence", "pretokenizers": [{"type": "ByteLevel", "add_prefix_space": false},
         {"type": "ByteLevel", "add_prefix_space": false}]})",
     R"("a": 0)", "a", "0:-1--1 "},
};
SLUICE_TABLE(PlaceTable, kPlaceRows);

// Ids of "a", with a mark before it or not, in texts that normalizers shorten at the beginning. The
// ids are those of the library.
TEST(MetaspaceTest, TheFirstPieceBeginsWithTheFirstByteOfTheOriginalText) {
  const auto ids = [](const std::string& normalizer, std::string_view text) {
    const std::string file = absl::StrCat(
        R"({"pre_tokenizer": {"type": "Metaspace", "prepend_scheme": "first"}, "normalizer": )",
        normalizer, R"(, "model": {"type": "WordLevel", "unk_token": "?",
                                   "vocab": {"?": 0, "a": 1, "\u2581a": 2, "_a": 3}}})");
    const auto tokenizer = ParseHuggingFace(file, {});
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    if (!tokenizer.ok()) return std::vector<int32_t>();
    const std::vector<int32_t> bare = (*tokenizer)->Encode(text).value();
    std::vector<ByteRange> ranges;
    EXPECT_EQ((*tokenizer)->EncodeLocated(text, Tokenizer::kNoLimit, &ranges).value(), bare);
    return bare;
  };
  const std::string strip = R"({"type": "Strip"})";
  EXPECT_THAT(ids(strip, "a"), ElementsAre(2));
  EXPECT_THAT(ids(strip, "  a"), ElementsAre(1));
  const std::string bert = R"({"type": "BertNormalizer"})";
  EXPECT_THAT(ids(bert, "A"), ElementsAre(2));
  EXPECT_THAT(ids(bert, "\u200ba"), ElementsAre(1));
  EXPECT_THAT(ids(R"({"type": "Replace", "pattern": {"Regex": "^x+"}, "content": ""})", "xa"),
              ElementsAre(1));
  EXPECT_THAT(ids(R"({"type": "Sequence", "normalizers": [{"type": "Strip"},
                      {"type": "Prepend", "prepend": "_"}]})",
                  "  a"),
              ElementsAre(3));
}

TEST(MetaspaceTest, AnOldSettingMayTurnThePrefixOff) {
  for (const char* const scheme :
       {"", R"(, "prepend_scheme": "always")", R"(, "prepend_scheme": "first")"}) {
    const std::string metaspace =
        absl::StrCat(R"({"type": "Metaspace", "add_prefix_space": false)", scheme, "}");
    const auto tokenizer = ParseHuggingFace(
        absl::StrCat(R"({"pre_tokenizer": )", metaspace, R"(, "decoder": )", metaspace,
                     R"(, "model": {"type": "WordLevel", "vocab": {"a": 0, "\u2581a": 1}}})"),
        {});
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    EXPECT_THAT((*tokenizer)->Encode("a a").value(), ElementsAre(0, 1));
    EXPECT_EQ((*tokenizer)->Decode(std::vector<int32_t>{1, 0}), " aa");
  }
}

TEST(PreTokenizerTest, BoundsOfFieldsAreChecked) {
  for (const auto& [part, field] : std::vector<std::pair<std::string, std::string>>{
           {R"({"type": "FixedLength", "length": 0})", "pre_tokenizer.length"},
           {R"({"type": "CharDelimiterSplit", "delimiter": "ab"})", "pre_tokenizer.delimiter"},
           {R"({"type": "CharDelimiterSplit", "delimiter": ""})", "pre_tokenizer.delimiter"}}) {
    const auto tokenizer = ParseHuggingFace(
        absl::StrCat(R"({"model": {"type": "WordLevel", "vocab": {"a": 0}}, "pre_tokenizer": )",
                     part, "}"),
        {});
    ASSERT_FALSE(tokenizer.ok()) << part;
    EXPECT_THAT(std::string(tokenizer.status().message()), ::testing::HasSubstr(field));
  }
}

TEST(SubwordModelTest, FilesThatTheLibraryReadsAreRead) {
  // Of equal pieces the last one is found.
  const auto twice = ParseHuggingFace(R"({"model": {"type": "Unigram", "unk_id": 0,
    "vocab": [["?", 0], ["a", -1], ["a", -2]]}})",
                                      {});
  ASSERT_TRUE(twice.ok()) << twice.status();
  EXPECT_EQ((*twice)->Encode("a").value(), std::vector<int32_t>{2});
  EXPECT_EQ((*twice)->Decode(std::vector<int32_t>{1}), "a");
  // A missing unknown token is an error only for a text that needs it.
  for (const char* const model :
       {R"({"model": {"type": "WordPiece", "vocab": {"a": 0}}})",
        R"({"model": {"type": "WordPiece", "vocab": {"a": 0}, "max_input_chars_per_word": 10000}})",
        R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [], "unk_token": "?"}})"}) {
    const auto tokenizer = ParseHuggingFace(model, {});
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    EXPECT_EQ((*tokenizer)->Encode("a").value(), std::vector<int32_t>{0});
    EXPECT_EQ((*tokenizer)->Encode("b").status().code(), absl::StatusCode::kFailedPrecondition);
  }
}

TEST(BertNormalizerTest, CharactersOfALaterUnicodeAreNotControlCharacters) {
  const auto tokenizer = ParseHuggingFace(R"({
    "normalizer": {"type": "BertNormalizer"}, "pre_tokenizer": {"type": "BertPreTokenizer"},
    "model": {"type": "WordPiece", "unk_token": "?", "vocab": {"?": 0, "a": 1}}})",
                                          {});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  // U+1FAE9 is of Unicode 16; U+0378 has no character; U+200B and U+E000 are removed.
  EXPECT_EQ((*tokenizer)->Encode("a \U0001FAE9 a \u0378").value(),
            (std::vector<int32_t>{1, 0, 1, 0}));
  EXPECT_EQ((*tokenizer)->Encode("a \u200b\ue000").value(), std::vector<int32_t>{1});
}

}  // namespace
}  // namespace sluice::tokenize
