#include "config/value.h"

#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <random>

namespace sluice {
namespace {

TEST(Quantity, ReadsNumbersAndSuffixes) {
  struct Case {
    const char* text;
    Unit unit;
    std::optional<int64_t> value;
  };
  const Case cases[] = {
      {"0", Unit::kNone, 0},
      {"-7", Unit::kNone, -7},
      {"007", Unit::kNone, 7},
      {"9223372036854775807", Unit::kNone, std::numeric_limits<int64_t>::max()},
      {"9223372036854775808", Unit::kNone, std::nullopt},
      {"", Unit::kNone, std::nullopt},
      {"-", Unit::kNone, std::nullopt},
      {"+1", Unit::kNone, std::nullopt},
      {" 1", Unit::kNone, std::nullopt},
      {"1 ", Unit::kNone, 1},
      {"1.5", Unit::kNone, std::nullopt},
      {"0x10", Unit::kNone, std::nullopt},
      {"1e3", Unit::kNone, std::nullopt},
      {"1_000", Unit::kNone, std::nullopt},
      {"5ms", Unit::kNone, std::nullopt},
      {"250", Unit::kMicroseconds, 250},
      {"250us", Unit::kMicroseconds, 250},
      {"5ms", Unit::kMicroseconds, 5000},
      {"5 ms", Unit::kMicroseconds, 5000},
      {"2s", Unit::kMicroseconds, 2'000'000},
      {"1min", Unit::kMicroseconds, 60'000'000},
      {"1h", Unit::kMicroseconds, 3'600'000'000},
      {"-1h", Unit::kMicroseconds, -3'600'000'000},
      {"1MS", Unit::kMicroseconds, std::nullopt},
      {"1MiB", Unit::kMicroseconds, std::nullopt},
      {"2562047788015215h", Unit::kMicroseconds, std::nullopt},
      {"7B", Unit::kBytes, 7},
      {"1KiB", Unit::kBytes, 1024},
      {"64MiB", Unit::kBytes, 64 << 20},
      {"3GiB", Unit::kBytes, int64_t{3} << 30},
      {"16TiB", Unit::kBytes, int64_t{16} << 40},
      {"1MB", Unit::kBytes, std::nullopt},
      {"8388608TiB", Unit::kBytes, std::nullopt},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.text);
    int64_t value = 0;
    ASSERT_EQ(ParseQuantity(c.text, c.unit, &value), c.value.has_value());
    EXPECT_EQ(value, c.value.value_or(0));
  }
}

TEST(Quantity, WritesTheLargestExactSuffix) {
  EXPECT_EQ(FormatQuantity(0, Unit::kMicroseconds), "0");
  EXPECT_EQ(FormatQuantity(1500, Unit::kMicroseconds), "1500us");
  EXPECT_EQ(FormatQuantity(90'000'000, Unit::kMicroseconds), "90s");
  EXPECT_EQ(FormatQuantity(1 << 20, Unit::kBytes), "1MiB");
  EXPECT_EQ(FormatQuantity((1 << 20) + 1, Unit::kBytes), "1048577B");
  EXPECT_EQ(FormatQuantity(1 << 20, Unit::kNone), "1048576");
}

TEST(Quantity, WhatIsWrittenIsReadBack) {
  constexpr uint64_t kSeed = 20260101;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937_64 random(kSeed);
  for (int i = 0; i < 1000; ++i) {
    const int64_t value = static_cast<int64_t>(random()) >> (random() % 64);
    const int64_t round = value / 1000 * 1000;
    for (const Unit unit : {Unit::kNone, Unit::kMicroseconds, Unit::kBytes}) {
      for (const int64_t expected : {value, round}) {
        int64_t read = 0;
        ASSERT_TRUE(ParseQuantity(FormatQuantity(expected, unit), unit, &read)) << expected;
        ASSERT_EQ(read, expected);
      }
    }
  }
}

TEST(Integer, KeepsItsRangeAndTheValueOnFailure) {
  const Integer kind{1, 10, Unit::kNone};
  int32_t value = 5;
  EXPECT_FALSE(kind.Parse("0", &value));
  EXPECT_FALSE(kind.Parse("11", &value));
  EXPECT_FALSE(kind.Parse("4294967298", &value));  // 2 in the low 32 bits
  EXPECT_EQ(value, 5);
  EXPECT_TRUE(kind.Parse("1", &value));
  EXPECT_EQ(value, 1);
  EXPECT_TRUE(kind.Parse("10", &value));
  EXPECT_EQ(value, 10);
}

TEST(IntegerList, ReadsWithAndWithoutBrackets) {
  const IntegerList kind{{1, 100}};
  std::vector<int32_t> value;
  EXPECT_TRUE(kind.Parse("1,2, 100", &value));
  EXPECT_EQ(value, (std::vector<int32_t>{1, 2, 100}));
  EXPECT_TRUE(kind.Parse("[7]", &value));
  EXPECT_EQ(value, (std::vector<int32_t>{7}));
  for (const char* bad : {"1,,2", "1,", "[1", "1]", "1;2", "0", "101", "a"}) {
    EXPECT_FALSE(kind.Parse(bad, &value)) << bad;
  }
  EXPECT_EQ(value, (std::vector<int32_t>{7}));
  EXPECT_TRUE(kind.Parse("[]", &value));
  EXPECT_TRUE(value.empty());
  std::string many = "1";
  for (int i = 0; i < 1024; ++i) many += ",1";
  EXPECT_FALSE(kind.Parse(many, &value));
}

TEST(Real, IsFiniteAndInRange) {
  const Real kind{1.0, 16.0, /*above_min=*/true};
  double value = 3;
  for (const char* bad : {"", "1", "1.0", "16.01", "nan", "inf", "-inf", "2x", "0x2", "1e999"}) {
    EXPECT_FALSE(kind.Parse(bad, &value)) << bad;
  }
  EXPECT_EQ(value, 3);
  EXPECT_TRUE(kind.Parse("1.5", &value));
  EXPECT_EQ(value, 1.5);
  EXPECT_TRUE(kind.Parse("1.6e1", &value));
  EXPECT_EQ(value, 16);
  EXPECT_TRUE((Real{0, 1}.Parse("0", &value)));
  EXPECT_EQ(kind.Format(0.1), "0.1");
  const Real open{0.0, 1.0, /*above_min=*/false, /*below_max=*/true};
  EXPECT_EQ(open.Expected(), "a number in [0, 1)");
  EXPECT_TRUE(open.Parse("0.999", &value));
  EXPECT_FALSE(open.Parse("1", &value));
}

TEST(Boolean, TakesOnlyTrueAndFalse) {
  bool value = false;
  EXPECT_TRUE(Boolean{}.Parse("true", &value));
  EXPECT_TRUE(value);
  for (const char* bad : {"", "1", "yes", "True", "on"}) {
    EXPECT_FALSE(Boolean{}.Parse(bad, &value)) << bad;
  }
  EXPECT_TRUE(value);
}

TEST(Address, NeedsHostAndPort) {
  std::string value;
  for (const char* good :
       {"0.0.0.0:8001", "localhost:0", "[::]:65535", "[fe80::1]:1", "a-b.c:80"}) {
    EXPECT_TRUE(Address{}.Parse(good, &value)) << good;
    EXPECT_EQ(value, good);
  }
  for (const char* bad :
       {"", ":80", "host", "host:", "host:65536", "host:-1", "host:080000", "::1:80", "[::1:80",
        "[]:80", "a b:80", "host:8 0", "h/x:80", "unix:/tmp/s"}) {
    EXPECT_FALSE(Address{}.Parse(bad, &value)) << bad;
  }
  EXPECT_TRUE(Address{.may_be_empty = true}.Parse("", &value));
  EXPECT_EQ(value, "");
}

TEST(Path, IsBoundedAndMayBeEmpty) {
  std::string value;
  EXPECT_TRUE(Path{}.Parse("/a b/../c", &value));
  EXPECT_EQ(value, "/a b/../c");
  EXPECT_FALSE(Path{}.Parse(std::string(4097, 'x'), &value));
  EXPECT_FALSE(Path{}.Parse(absl::string_view("a\0b", 3), &value));
  EXPECT_FALSE(Path{}.Parse("a\xff", &value));
  EXPECT_EQ(value, "/a b/../c");
  EXPECT_TRUE(Path{}.Parse(std::string(4096, 'x'), &value));
  EXPECT_TRUE(Path{}.Parse("", &value));
  EXPECT_EQ(value, "");
}

TEST(Name, HasItsCharactersAndLength) {
  std::string value;
  const Name kind{4};
  EXPECT_TRUE(kind.Parse("a_.-", &value));
  for (const char* bad : {"", "abcde", "a/b", "a b", "\xc3\xa9", "a\n"}) {
    EXPECT_FALSE(kind.Parse(bad, &value)) << bad;
  }
}

TEST(DeviceName, ReadsAndWritesWhatServes) {
  using Kind = DeviceChoice::Kind;
  struct Case {
    const char* text;
    std::optional<DeviceChoice> value;
    const char* formatted = "";
  };
  const Case cases[] = {
      {"auto", DeviceChoice{Kind::kAuto}, "auto"},
      {"cpu", DeviceChoice{Kind::kCpu}, "cpu"},
      {"cuda", DeviceChoice{Kind::kCuda, 0}, "\"cuda:0\""},
      {"cuda:7", DeviceChoice{Kind::kCuda, 7}, "\"cuda:7\""},
      {"cuda:1023", DeviceChoice{Kind::kCuda, 1023}, "\"cuda:1023\""},
      {"cuda:1024", std::nullopt},
      {"cuda:-1", std::nullopt},
      {"cuda:", std::nullopt},
      {"cuda1", std::nullopt},
      {"cpu:0", std::nullopt},
      {"gpu", std::nullopt},
      {"", std::nullopt},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.text);
    DeviceChoice value{Kind::kCuda, 99};
    ASSERT_EQ(DeviceName{}.Parse(c.text, &value), c.value.has_value());
    if (!c.value.has_value()) {
      EXPECT_EQ(value.index, 99);
      continue;
    }
    EXPECT_EQ(value.kind, c.value->kind);
    EXPECT_EQ(value.index, c.value->index);
    EXPECT_EQ(DeviceName{}.Format(value), c.formatted);
  }
}

TEST(Quote, EscapesWhatWouldBreakALine) {
  EXPECT_EQ(Quote("a\"b\\c\n\x01\x7f\xc3\xa9"), "\"a\\\"b\\\\c\\x0a\\x01\\x7f\xc3\xa9\"");
  EXPECT_EQ(Quote("\xc2\x9b[2J"), "\"\\x9b[2J\"");  // a control of a terminal, as YAML writes it
}

TEST(Quote, IsUtf8WhateverItQuotes) {
  EXPECT_EQ(Quote("\xc3\xa9\xc3"), "\"\xc3\xa9\\xc3\"");  // cut short
  EXPECT_EQ(Quote("\xed\xa0\x80"), "\"\\xed\\xa0\\x80\"");
}

}  // namespace
}  // namespace sluice
