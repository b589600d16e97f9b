#include "client/utf8_stream.h"

#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "base/utf8.h"

namespace sluice::client {
namespace {

constexpr char kBad[] = "\xef\xbf\xbd";

std::string Whole(absl::string_view text, bool controls = true) {
  Utf8Stream stream(controls);
  const std::string shown = stream.Append(text);
  return shown + stream.Finish();
}

TEST(Utf8Stream, ReplacesTheLongestBeginningOfACharacter) {
  const struct {
    const char* text;
    std::string shown;
  } cases[] = {
      {"h\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \xf4\x8f\xbf\xbf",
       "h\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \xf4\x8f\xbf\xbf"},
      {"\xed\x9f\xbf\xee\x80\x80", "\xed\x9f\xbf\xee\x80\x80"},
      {"\x80z", absl::StrCat(kBad, "z")},                          // goes on with nothing
      {"\xc0\xaf", absl::StrCat(kBad, kBad)},                      // overlong
      {"\xe0\x9f\xbf", absl::StrCat(kBad, kBad, kBad)},            // overlong
      {"\xf0\x8f\xbf\xbf", absl::StrCat(kBad, kBad, kBad, kBad)},  // overlong
      {"\xed\xa0\x80", absl::StrCat(kBad, kBad, kBad)},            // a surrogate
      {"\xf4\x90\x80\x80", absl::StrCat(kBad, kBad, kBad, kBad)},  // above U+10FFFF
      {"\xf5\xff", absl::StrCat(kBad, kBad)},
      {"\xe2\x82z", absl::StrCat(kBad, "z")},                    // cut short
      {"\xf0\x9f\x98\xc3\xa9", absl::StrCat(kBad, "\xc3\xa9")},  // cut short
      {"\xe2\x82", kBad},
  };
  for (const auto& c : cases) EXPECT_EQ(Whole(c.text), c.shown);
}

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

TEST(Utf8Stream, WhereATextIsCutDoesNotMatter) {
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
