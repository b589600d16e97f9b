#include "engine/model/text_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "tests/support/table.h"

namespace sluice {
namespace {

const std::string kReplacement = "\xEF\xBF\xBD";

// Returns whether `text` consists of whole characters, by decoding code points independently of the
// code under test.
bool IsUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const int bytes = lead < 0x80       ? 1
                      : lead >> 5 == 6  ? 2
                      : lead >> 4 == 14 ? 3
                      : lead >> 3 == 30 ? 4
                                        : 0;
    if (bytes == 0 || i + bytes > text.size()) return false;
    uint32_t point = bytes == 1 ? lead : lead & (0x7F >> bytes);
    for (int k = 1; k < bytes; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if (next >> 6 != 2) return false;
      point = point << 6 | (next & 0x3F);
    }
    const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (point < least[bytes] || point > 0x10FFFF || (point >= 0xD800 && point < 0xE000))
      return false;
    i += bytes;
  }
  return true;
}

// A tokenizer whose tokens are texts of any bytes.
class PieceTokenizer final : public Tokenizer {
 public:
  explicit PieceTokenizer(std::vector<std::string> pieces) : pieces_(std::move(pieces)) {}
  absl::StatusOr<std::vector<int32_t>> EncodeBare(std::string_view, int64_t) const override {
    return std::vector<int32_t>();
  }
  int64_t longest_token_bytes() const override { return 4; }
  std::string Decode(std::span<const int32_t> ids) const override {
    longest_ = std::max(longest_, ids.size());
    std::string text;
    for (int32_t id : ids) text += pieces_[id];
    return text;
  }
  size_t longest() const { return longest_; }  // tokens of the longest sequence decoded

 private:
  std::vector<std::string> pieces_;
  mutable size_t longest_ = 0;
};

// A tokenizer that decodes like SentencePiece: "_" in a piece becomes a space; of the spaces at the
// beginning of the text the first or all are dropped; adjacent byte tokens form characters, and
// each byte outside a character becomes U+FFFD; control tokens have no text.
class SpaceAndByteTokenizer final : public Tokenizer {
 public:
  static constexpr int32_t kControl = 256;
  explicit SpaceAndByteTokenizer(std::vector<std::string> pieces, bool drops_all = false)
      : pieces_(std::move(pieces)), drops_all_(drops_all) {}
  absl::StatusOr<std::vector<int32_t>> EncodeBare(std::string_view, int64_t) const override {
    return std::vector<int32_t>();
  }
  int64_t longest_token_bytes() const override { return 4; }
  std::string Decode(std::span<const int32_t> ids) const override {
    longest_ = std::max(longest_, ids.size());
    std::string text;
    bool begun = false;
    for (size_t i = 0; i < ids.size();) {
      if (ids[i] > kControl) {
        std::string piece = pieces_[ids[i] - kControl - 1];
        std::replace(piece.begin(), piece.end(), '_', ' ');
        const bool beginning = drops_all_ ? text.empty() : !begun;
        text += beginning && piece.starts_with(' ') ? piece.substr(1) : piece;
      }
      begun |= ids[i] != kControl;
      if (ids[i] >= kControl) {
        ++i;
        continue;
      }
      size_t bytes = 4;
      std::string character;
      for (; bytes > 0; --bytes) {
        character.clear();
        for (size_t k = i; k < std::min(i + bytes, ids.size()) && ids[k] < kControl; ++k) {
          character.push_back(static_cast<char>(ids[k]));
        }
        if (character.size() == bytes && IsUtf8(character) && (bytes == 1) == (ids[i] < 0x80))
          break;
      }
      text += bytes > 0 ? character : kReplacement;
      i += std::max<size_t>(bytes, 1);
    }
    return text;
  }
  size_t longest() const { return longest_; }

 private:
  std::vector<std::string> pieces_;
  bool drops_all_;
  mutable size_t longest_ = 0;
};

struct Streamed {
  std::vector<std::string> pieces;  // after each token, then at the end
  bool stopped = false;
  size_t tokens = 0;  // appended before the stream stopped

  std::string text() const {
    std::string all;
    for (const std::string& piece : pieces) all += piece;
    return all;
  }
};

Streamed Stream(const Tokenizer& tokenizer, std::span<const int32_t> tokens,
                const std::vector<std::string>& stops = {}, int32_t min_tokens = 0,
                std::span<const int32_t> before = {}) {
  TextStream stream(&tokenizer, std::make_shared<const StopTexts>(stops), min_tokens, before);
  Streamed out;
  for (const int32_t token : tokens) {
    stream.Append(token, &out.pieces.emplace_back());
    if (!stream.stopped()) ++out.tokens;
  }
  stream.Finish(&out.pieces.emplace_back());
  out.stopped = stream.stopped();
  return out;
}

std::vector<int32_t> BytesOf(std::string_view text) {
  std::vector<int32_t> tokens;
  for (const char byte : text) tokens.push_back(static_cast<unsigned char>(byte));
  return tokens;
}

Streamed StreamBytes(std::string_view text, const std::vector<std::string>& stops = {},
                     int32_t min_tokens = 0) {
  return Stream(*MakeByteTokenizer(-1), BytesOf(text), stops, min_tokens);
}

// Returns `text` cut into random tokens.
std::vector<std::string> RandomPieces(std::mt19937_64& random, std::string_view text, size_t most) {
  std::vector<std::string> pieces;
  while (!text.empty()) {
    const size_t size = std::min(text.size(), random() % (most + 1));
    pieces.emplace_back(text.substr(0, size));
    text.remove_prefix(size);
  }
  return pieces;
}

Streamed StreamPieces(const std::vector<std::string>& pieces,
                      const std::vector<std::string>& stops = {}, int32_t min_tokens = 0) {
  std::vector<int32_t> tokens(pieces.size());
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i);
  return Stream(PieceTokenizer(pieces), tokens, stops, min_tokens);
}

const std::string kMultilingual =
    "Grüße, мир! 你好 — नमस्ते 🙂👩‍👩‍👧 "
    "\x7F\xC2\x80\xDF\xBF\xE0\xA0\x80\xED\x9F\xBF\xEF\xBF\xBD\xF0\x90\x80\x80"
    "\xF4\x8F\xBF\xBF é";

TEST(TextStreamTest, EveryPieceConsistsOfWholeCharacters) {
  ASSERT_TRUE(IsUtf8(kMultilingual));
  const Streamed bytes = StreamBytes(kMultilingual);
  EXPECT_EQ(bytes.text(), kMultilingual);
  for (const std::string& piece : bytes.pieces) EXPECT_TRUE(IsUtf8(piece)) << piece;
  EXPECT_EQ(bytes.pieces.back(), "") << "complete text is not withheld";
  for (size_t cut = 0; cut <= kMultilingual.size(); ++cut) {
    const Streamed two = StreamPieces({kMultilingual.substr(0, cut), kMultilingual.substr(cut)});
    EXPECT_EQ(two.text(), kMultilingual);
    for (const std::string& piece : two.pieces) EXPECT_TRUE(IsUtf8(piece)) << "cut at " << cut;
    // A text that ends in U+FFFD is withheld as a whole: its last byte may have been decoded
    // separately.
    if (!kMultilingual.substr(0, cut).ends_with(kReplacement)) {
      EXPECT_GE(two.pieces[0].size() + 3, cut);
    }
  }
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const Streamed some = StreamPieces(RandomPieces(random, kMultilingual, 1 + seed % 9));
    EXPECT_EQ(some.text(), kMultilingual);
    for (const std::string& piece : some.pieces) EXPECT_TRUE(IsUtf8(piece)) << piece;
  }
}

TEST(TextStreamTest, InvalidUtf8PassesUnchanged) {
  const char lead[] =
      "\x00\x41\x80\xBF\xC1\xC2\xE0\xE1\xED\xEF\xF0\xF1\xF4\xF5\xFF\xA0\x9F\x90\x8F\xBD";
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    std::string binary;
    for (int i = 0; i < 80; ++i) {
      binary.push_back(seed % 2 == 0 ? static_cast<char>(random()) : lead[random() % 20]);
    }
    const Streamed bytes = StreamBytes(binary);
    EXPECT_EQ(bytes.text(), binary);
    EXPECT_LE(bytes.pieces.back().size(), 3u) << "only the beginning of a character is withheld";
    EXPECT_EQ(StreamPieces(RandomPieces(random, binary, 7)).text(), binary);
  }
}

struct WaitingBytesRow {
  const char* name;
  std::string bytes;
  bool waits;
};
class WaitingBytesTable : public TableTest<WaitingBytesRow> {};

TEST_P(WaitingBytesTable, OnlyAnIncompleteCharacterWaits) {
  const Streamed streamed = StreamPieces({row().bytes});
  EXPECT_EQ(streamed.text(), row().bytes);
  EXPECT_EQ(!streamed.pieces.back().empty(), row().waits);
}

const WaitingBytesRow kWaitingBytesRows[] = {
    {.name = "AnAsciiCharacterPasses", .bytes = "a", .waits = false},
    {.name = "ASingleContinuationPasses", .bytes = "\x80", .waits = false},
    {.name = "AnOverlongLeadOfTwoPasses", .bytes = "\xC1", .waits = false},
    {.name = "TheFirstLeadOfTwoWaits", .bytes = "\xC2", .waits = true},
    {.name = "TheLastLeadOfTwoWaits", .bytes = "\xDF", .waits = true},
    {.name = "TheFirstLeadOfThreeWaits", .bytes = "\xE0", .waits = true},
    {.name = "AnOverlongBeginningOfThreePasses", .bytes = "\xE0\x9F", .waits = false},
    {.name = "TheFirstBeginningOfThreeWaits", .bytes = "\xE0\xA0", .waits = true},
    {.name = "TheLastBeginningBeforeTheSurrogatesWaits", .bytes = "\xED\x9F", .waits = true},
    {.name = "ASurrogatePasses", .bytes = "\xED\xA0", .waits = false},
    {.name = "TheLastBeginningOfThreeWaits", .bytes = "\xEF\xBF", .waits = true},
    {.name = "AnOverlongBeginningOfFourPasses", .bytes = "\xF0\x8F", .waits = false},
    {.name = "TheFirstBeginningOfFourWaits", .bytes = "\xF0\x90", .waits = true},
    {.name = "ThreeBytesOfFourWait", .bytes = "\xF0\x90\x80", .waits = true},
    {.name = "TheLastBeginningOfFourWaits", .bytes = "\xF4\x8F", .waits = true},
    {.name = "ABeginningAboveTheLastCodePointPasses", .bytes = "\xF4\x90", .waits = false},
    {.name = "ALeadAboveTheLastPasses", .bytes = "\xF5", .waits = false},
    {.name = "AByteThatIsNeverUsedPasses", .bytes = "\xFF", .waits = false},
    {.name = "TwoBytesOfThreeWait", .bytes = "\xE4\xBD", .waits = true},
    {.name = "ASecondLeadWaits", .bytes = "\xE4\xE4", .waits = true},
    {.name = "ThreeBytesOfAFourthPlaneWait", .bytes = "\xF1\x80\x80", .waits = true},
    {.name = "ThreeContinuationsPass", .bytes = "\x80\x80\x80", .waits = false},
    {.name = "ALeadWithAnAsciiCharacterPasses", .bytes = "\xC2\x41", .waits = false},
};
SLUICE_TABLE(WaitingBytesTable, kWaitingBytesRows);

struct StopTextRow {
  const char* name;
  std::string text;
  std::vector<std::string> stops;
  std::string expected;
  bool stopped = true;
};
class StopTextTable : public TableTest<StopTextRow> {};

TEST_P(StopTextTable, EndsTheTextHoweverItIsCutIntoTokens) {
  const Streamed bytes = StreamBytes(row().text, row().stops);
  EXPECT_EQ(bytes.text(), row().expected);
  EXPECT_EQ(bytes.stopped, row().stopped);
  for (uint64_t seed = 0; seed < 30; ++seed) {
    std::mt19937_64 random(seed);
    const Streamed some = StreamPieces(RandomPieces(random, row().text, 1 + seed % 6), row().stops);
    EXPECT_EQ(some.text(), row().expected) << "seed " << seed;
    EXPECT_EQ(some.stopped, row().stopped) << "seed " << seed;
  }
  EXPECT_EQ(StreamPieces({row().text}, row().stops).text(), row().expected);
}

const StopTextRow kStopTextRows[] = {
    {.name = "AStopInTheMiddleEndsTheText",
     .text = "hello END of it",
     .stops = {"END"},
     .expected = "hello "},
    {.name = "AStopAloneLeavesNothing", .text = "END", .stops = {"END"}, .expected = ""},
    {.name = "ABeginningOfAStopBeforeItIsText",
     .text = "ENEND",
     .stops = {"END"},
     .expected = "EN"},
    {.name = "ABeginningOfAStopAtTheEndIsText",
     .text = "EN",
     .stops = {"END"},
     .expected = "EN",
     .stopped = false},
    {.name = "ARepeatedBeginningIsText", .text = "aaab", .stops = {"aab"}, .expected = "a"},
    {.name = "ARepeatedLongBeginningIsText",
     .text = "aabaabaac",
     .stops = {"aabaac"},
     .expected = "aab"},
    {.name = "AnAlternatingBeginningIsText",
     .text = "abababac",
     .stops = {"ababac"},
     .expected = "ab"},
    {.name = "TheStopThatEndsFirstCounts", .text = "abcd", .stops = {"bcd", "c"}, .expected = "ab"},
    {.name = "OfStopsThatEndTogetherTheLongestCounts",
     .text = "xabc",
     .stops = {"bc", "abc", "c"},
     .expected = "x"},
    {.name = "TheStopThatComesFirstCounts",
     .text = "one two",
     .stops = {"two", "one"},
     .expected = ""},
    {.name = "AStopThatDoesNotComeEndsNothing",
     .text = "one two",
     .stops = {"three"},
     .expected = "one two",
     .stopped = false},
    {.name = "AStopOfThreeBytesEndsTheText",
     .text = "你好。再见",
     .stops = {"。"},
     .expected = "你好"},
    {.name = "AStopMayCutACharacter", .text = "\xE4\xBD!", .stops = {"!"}, .expected = "\xE4\xBD"},
    {.name = "AStopOfOneCharacterEndsTheText", .text = "aaaa", .stops = {"a"}, .expected = ""},
    {.name = "AStopGivenTwiceCountsOnce", .text = "same", .stops = {"me", "me"}, .expected = "sa"},
};
SLUICE_TABLE(StopTextTable, kStopTextRows);

// Returns the position of the stop that ends first, or of the longest one if several end together,
// by trying all; npos if there is none.
size_t FirstStop(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 0; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops) {
      if (std::string_view(text).substr(0, end).ends_with(stop))
        longest = std::max(longest, stop.size());
    }
    if (longest > 0) return end - longest;
  }
  return std::string::npos;
}

TEST(TextStreamTest, FindsTheFirstStopInRandomText) {
  int stopped = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const auto word = [&](size_t size) {
      std::string out;
      for (size_t i = 0; i < size; ++i) {
        const uint64_t letter = random() % 5;  // few letters, so that stops often begin
        out += letter < 2 ? "a" : letter < 4 ? "b" : "ä";
      }
      return out;
    };
    const std::string text = word(40);
    std::vector<std::string> stops;
    for (uint64_t i = 0; i < 1 + seed % 3; ++i) stops.push_back(word(1 + random() % 7));
    const Streamed streamed = StreamPieces(RandomPieces(random, text, 1 + seed % 5), stops);
    const size_t first = FirstStop(text, stops);
    ASSERT_EQ(streamed.text(), text.substr(0, first));
    ASSERT_EQ(streamed.stopped, first != std::string::npos);
    for (const std::string& piece : streamed.pieces) ASSERT_TRUE(IsUtf8(piece));
    stopped += streamed.stopped ? 1 : 0;
  }
  EXPECT_GT(stopped, 500);
  EXPECT_LT(stopped, 2000);
}

TEST(TextStreamTest, HoldsBackOnlyTheTextThatMayBecomeAStop) {
  const Streamed streamed = StreamBytes("xENxENDy", {"END"});
  EXPECT_EQ(streamed.pieces, (std::vector<std::string>{"x", "", "", "ENx", "", "", "", "", ""}));
  EXPECT_TRUE(streamed.stopped);
  EXPECT_EQ(streamed.tokens, 6u) << "the token that completes the stop text stops";
}

TEST(TextStreamTest, IgnoresStopsThatEndWithinTheMinimumOfTokens) {
  const auto cut = [](int32_t min_tokens) {
    const Streamed streamed = StreamBytes("a.b.c", {"."}, min_tokens);
    return streamed.text() + (streamed.stopped ? "|" : "");
  };
  EXPECT_EQ(cut(0), "a|");
  EXPECT_EQ(cut(1), "a|");
  EXPECT_EQ(cut(2), "a.b|");
  EXPECT_EQ(cut(3), "a.b|");
  EXPECT_EQ(cut(4), "a.b.c");
  // A stop that begins in the first tokens and ends later is found.
  const Streamed across = StreamBytes("xENDy", {"END"}, 3);
  EXPECT_EQ(across.text(), "x");
  EXPECT_EQ(StreamBytes("xENDy", {"END"}, 4).text(), "xENDy");
  EXPECT_EQ(StreamBytes("aaa", {"aa"}, 2).text(), "a")
      << "the second one, which overlaps the first";
}

TEST(TextStreamTest, SpecialTokensHaveNoTextAndAreNotKept) {
  const auto bytes = MakeByteTokenizer(256);
  std::vector<int32_t> tokens = {256, 'a', 257, 0xC3, 256, 0xA4};
  tokens.insert(tokens.end(), 10'000, 257);
  tokens.push_back('b');
  EXPECT_EQ(Stream(*bytes, tokens).text(), "aäb");
  const PieceTokenizer pieces({"", "a"});
  std::vector<int32_t> mostly(10'000, 0);
  mostly[9'000] = 1;
  EXPECT_EQ(Stream(pieces, mostly).text(), "a");
  EXPECT_LE(pieces.longest(), 8u);
}

class DependentDecodeTest : public testing::Test {
 protected:
  // The tokens of the pieces begin at 257.
  const std::vector<std::string> pieces_ = {"_Hello", "_world", "!", "_", "ing", "_END", "END"};
  const SpaceAndByteTokenizer tokenizer_{pieces_};
  static constexpr int32_t kHello = 257, kWorld = 258, kMark = 259, kSpace = 260, kIng = 261,
                           kSpaceEnd = 262, kEnd = 263;
};

TEST_F(DependentDecodeTest, SpacesAndBytesMatchTheWholeText) {
  const std::vector<int32_t> tokens = {
      kHello, kWorld, 0xE4, 0xBD, 0xA0, kMark, kSpace, kWorld, SpaceAndByteTokenizer::kControl,
      kWorld, kIng};
  ASSERT_EQ(tokenizer_.Decode(tokens), "Hello world你!  world worlding");
  EXPECT_EQ(Stream(tokenizer_, tokens).pieces,
            (std::vector<std::string>{"Hello", " world", "", "", "你", "!", " ", " world", "",
                                      " world", "ing", ""}));
}

TEST_F(DependentDecodeTest, StopsSpanTokensWhoseTextDependsOnOthers) {
  const std::vector<int32_t> tokens = {kHello, kWorld, kSpaceEnd, kMark};
  EXPECT_EQ(Stream(tokenizer_, tokens, {"world END"}).text(), "Hello ");
  EXPECT_EQ(Stream(tokenizer_, tokens, {" END"}).text(), "Hello world");
  EXPECT_EQ(Stream(tokenizer_, std::vector<int32_t>{kSpaceEnd, kMark}, {" END"}).text(), "END!")
      << "the space at the beginning of the text is dropped";
}

TEST_F(DependentDecodeTest, AnAnswerContinuesTheTextBeforeIt) {
  const auto stream = [&](std::vector<int32_t> before, std::vector<int32_t> tokens,
                          const std::vector<std::string>& stops = {}) {
    return Stream(tokenizer_, tokens, stops, 0, before).text();
  };
  EXPECT_EQ(stream({kHello}, {kWorld, kIng}), " worlding");
  EXPECT_EQ(stream({kHello, kSpace}, {kWorld}), " world");
  EXPECT_EQ(stream({kHello, SpaceAndByteTokenizer::kControl}, {kWorld}), " world");
  EXPECT_EQ(stream({SpaceAndByteTokenizer::kControl}, {kWorld}), "world");
  EXPECT_EQ(stream({kHello}, {kSpaceEnd, kMark}, {" END"}), "");
  EXPECT_EQ(stream({kHello}, {0xE4, 0xBD, 0xA0}), "你");
  // The first token does not complete a character of the text before it.
  EXPECT_EQ(stream({0xE4, 0xBD}, {kWorld}), "world");
}

TEST_F(DependentDecodeTest, ATextAndItsContinuationAddUpToTheWholeText) {
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    std::vector<int32_t> tokens;
    for (size_t i = 0; i < 12; ++i) tokens.push_back(static_cast<int32_t>(257 + random() % 7));
    const std::span<const int32_t> before = std::span(tokens).first(random() % 12);
    const std::span<const int32_t> answer = std::span(tokens).subspan(before.size());
    for (const bool drops_all : {false, true}) {
      const SpaceAndByteTokenizer tokenizer(pieces_, drops_all);
      const std::string text = tokenizer.Decode(before);
      if (text.empty() && !before.empty()) continue;  // The whole text drops the spaces.
      ASSERT_EQ(text + Stream(tokenizer, answer, {}, 0, before).text(), tokenizer.Decode(tokens));
    }
  }
}

TEST_F(DependentDecodeTest, PiecesOfRandomTokensAddUpToTheWholeText) {
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    std::vector<int32_t> tokens;
    while (tokens.size() < 60) {
      switch (random() % 5) {
        case 0:
        case 1:
          tokens.push_back(static_cast<int32_t>(257 + random() % 7));
          break;
        case 2:  // runs of control tokens are too short to be cut
          if (!tokens.empty()) tokens.push_back(SpaceAndByteTokenizer::kControl);
          break;
        case 3:
          for (int32_t byte :
               BytesOf(std::string_view("你🙂ä").substr(random() % 9, random() % 9))) {
            tokens.push_back(byte);
          }
          break;
        default:
          tokens.push_back(static_cast<int32_t>(random() % 256));
      }
    }
    for (const bool drops_all : {false, true}) {
      const SpaceAndByteTokenizer tokenizer(pieces_, drops_all);
      const Streamed streamed = Stream(tokenizer, tokens);
      ASSERT_EQ(streamed.text(), tokenizer.Decode(tokens)) << drops_all;
      for (const std::string& piece : streamed.pieces) ASSERT_TRUE(IsUtf8(piece));
    }
  }
}

TEST_F(DependentDecodeTest, NeverDecodesMoreThanAFewTokensAtATime) {
  const SpaceAndByteTokenizer fresh({"_Hello"});
  std::vector<int32_t> tokens(5000, 0x80);  // each is decoded to U+FFFD
  tokens.insert(tokens.end(), 5000, SpaceAndByteTokenizer::kControl);
  tokens.insert(tokens.end(), 5000, kHello);
  const Streamed streamed = Stream(fresh, tokens);
  EXPECT_LE(fresh.longest(), 8u);
  EXPECT_EQ(streamed.text().size(), 5000 * kReplacement.size() + 5000 * 6);
}

}  // namespace
}  // namespace sluice
