#include "client/utf8_stream.h"

#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "base/utf8.h"
#include "tests/support/table.h"

namespace sluice::client {
namespace {

constexpr char kBad[] = "\xef\xbf\xbd";

std::string Whole(absl::string_view text, bool controls = true) {
  Utf8Stream stream(controls);
  const std::string shown = stream.Append(text);
  return shown + stream.Finish();
}

struct Utf8ReplacementRow {
  const char* name;
  const char* text;
  std::string shown;
};
class Utf8ReplacementTable : public TableTest<Utf8ReplacementRow> {};

TEST_P(Utf8ReplacementTable, ReplacesTheLongestPrefixOfACharacter) {
  EXPECT_EQ(Whole(row().text), row().shown);
}

const Utf8ReplacementRow kUtf8ReplacementRows[] = {
    {.name = "CharactersOfEveryLengthStay",
     .text = "h\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \xf4\x8f\xbf\xbf",
     .shown = "h\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \xf4\x8f\xbf\xbf"},
    {.name = "TheNeighboursOfTheSurrogatesStay",
     .text = "\xed\x9f\xbf\xee\x80\x80",
     .shown = "\xed\x9f\xbf\xee\x80\x80"},
    {.name = "AContinuationByteByItselfIsReplaced",
     .text = "\x80z",
     .shown = absl::StrCat(kBad, "z")},
    {.name = "AnOverlongPairIsReplacedByteByByte",
     .text = "\xc0\xaf",
     .shown = absl::StrCat(kBad, kBad)},
    {.name = "AnOverlongTripleIsReplacedByteByByte",
     .text = "\xe0\x9f\xbf",
     .shown = absl::StrCat(kBad, kBad, kBad)},
    {.name = "AnOverlongQuadrupleIsReplacedByteByByte",
     .text = "\xf0\x8f\xbf\xbf",
     .shown = absl::StrCat(kBad, kBad, kBad, kBad)},
    {.name = "ASurrogateIsReplacedByteByByte",
     .text = "\xed\xa0\x80",
     .shown = absl::StrCat(kBad, kBad, kBad)},
    {.name = "ACharacterAboveTheLastIsReplacedByteByByte",
     .text = "\xf4\x90\x80\x80",
     .shown = absl::StrCat(kBad, kBad, kBad, kBad)},
    {.name = "BytesThatAreNeverUsedAreReplaced",
     .text = "\xf5\xff",
     .shown = absl::StrCat(kBad, kBad)},
    {.name = "ACutTripleIsReplacedOnce", .text = "\xe2\x82z", .shown = absl::StrCat(kBad, "z")},
    {.name = "ACutQuadrupleIsReplacedOnce",
     .text = "\xf0\x9f\x98\xc3\xa9",
     .shown = absl::StrCat(kBad, "\xc3\xa9")},
    {.name = "ACutAtTheEndIsReplacedOnce", .text = "\xe2\x82", .shown = kBad},
};
SLUICE_TABLE(Utf8ReplacementTable, kUtf8ReplacementRows);

TEST(Utf8Stream, HoldsACharacterBackUntilItIsComplete) {
  Utf8Stream stream(/*controls=*/true);
  EXPECT_EQ(stream.Append("a\xe2"), "a");
  EXPECT_EQ(stream.Append("\x82"), "");
  EXPECT_EQ(stream.Append("\xac\xf0"), "\xe2\x82\xac");
  EXPECT_EQ(stream.Append("b"), absl::StrCat(kBad, "b"));
  EXPECT_EQ(stream.Finish(), "");
}

TEST(Utf8Stream, ControlsArePassedOrReplaced) {
  const absl::string_view text("\x1b\t\n\r\x7f\xc2\x9b\xc2\xa0\0", 10);
  EXPECT_EQ(Whole(text), std::string(text));
  EXPECT_EQ(Whole(text, /*controls=*/false),
            absl::StrCat(kBad, "\t\n", kBad, kBad, kBad, "\xc2\xa0", kBad));
}

TEST(Utf8Stream, TheResultDoesNotDependOnTheCuts) {
  constexpr uint64_t kSeed = 4;
  std::mt19937_64 random(kSeed);
  const unsigned char bytes[] = {'a', 0x80, 0x9f, 0xa0, 0xbf, 0xc2, 0xe0, 0xe2, 0xed, 0xf0, 0xf4};
  for (int round = 0; round < 5000; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << " round " << round);
    std::string text;
    for (size_t n = random() % 12; n > 0; --n) {
      text.push_back(static_cast<char>(bytes[random() % sizeof bytes]));
    }
    Utf8Stream stream(/*controls=*/true);
    std::string shown;
    for (const char byte : text) {
      shown += stream.Append(absl::string_view(&byte, 1));
      ASSERT_TRUE(IsUtf8(shown));
    }
    shown += stream.Finish();
    ASSERT_TRUE(IsUtf8(shown));
    ASSERT_EQ(shown, Whole(text));
    ASSERT_EQ(IsUtf8(text), shown == text);
  }
}

}  // namespace
}  // namespace sluice::client
