#include "base/option_value.h"

#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <random>

#include "engine/option_specs.h"
#include "tests/support/table.h"

namespace sluice {
namespace {

struct QuantityRow {
  const char* name;
  const char* text;
  Unit unit;
  std::optional<int64_t> value;
};

class QuantityTable : public TableTest<QuantityRow> {};

TEST_P(QuantityTable, IsReadWithItsSuffixOrRefused) {
  int64_t value = 0;
  ASSERT_EQ(ParseQuantity(row().text, row().unit, &value), row().value.has_value());
  EXPECT_EQ(value, row().value.value_or(0));
}

constexpr QuantityRow kQuantityRows[] = {
    {.name = "ZeroIsRead", .text = "0", .unit = Unit::kNone, .value = 0},
    {.name = "ANegativeNumberIsRead", .text = "-7", .unit = Unit::kNone, .value = -7},
    {.name = "LeadingZerosAreRead", .text = "007", .unit = Unit::kNone, .value = 7},
    {.name = "TheLargestNumberIsRead",
     .text = "9223372036854775807",
     .unit = Unit::kNone,
     .value = std::numeric_limits<int64_t>::max()},
    {.name = "ANumberAboveTheLargestIsRefused",
     .text = "9223372036854775808",
     .unit = Unit::kNone,
     .value = std::nullopt},
    {.name = "AnEmptyTextIsRefused", .text = "", .unit = Unit::kNone, .value = std::nullopt},
    {.name = "OnlyAMinusIsRefused", .text = "-", .unit = Unit::kNone, .value = std::nullopt},
    {.name = "APlusIsRefused", .text = "+1", .unit = Unit::kNone, .value = std::nullopt},
    {.name = "ALeadingSpaceIsRefused", .text = " 1", .unit = Unit::kNone, .value = std::nullopt},
    {.name = "ATrailingSpaceIsRead", .text = "1 ", .unit = Unit::kNone, .value = 1},
    {.name = "AFractionIsRefused", .text = "1.5", .unit = Unit::kNone, .value = std::nullopt},
    {.name = "HexadecimalIsRefused", .text = "0x10", .unit = Unit::kNone, .value = std::nullopt},
    {.name = "AnExponentIsRefused", .text = "1e3", .unit = Unit::kNone, .value = std::nullopt},
    {.name = "ASeparatorIsRefused", .text = "1_000", .unit = Unit::kNone, .value = std::nullopt},
    {.name = "ASuffixIsRefusedWithoutAUnit",
     .text = "5ms",
     .unit = Unit::kNone,
     .value = std::nullopt},
    {.name = "ADurationWithoutAUnitIsRefused",
     .text = "250",
     .unit = Unit::kMicroseconds,
     .value = std::nullopt},
    {.name = "ADurationOfZeroNeedsNoUnit", .text = "0", .unit = Unit::kMicroseconds, .value = 0},
    {.name = "APlainSizeIsInBytes", .text = "7", .unit = Unit::kBytes, .value = 7},
    {.name = "MicrosecondsAreRead", .text = "250us", .unit = Unit::kMicroseconds, .value = 250},
    {.name = "MillisecondsAreRead", .text = "5ms", .unit = Unit::kMicroseconds, .value = 5000},
    {.name = "ASpaceBeforeTheSuffixIsRead",
     .text = "5 ms",
     .unit = Unit::kMicroseconds,
     .value = 5000},
    {.name = "SecondsAreRead", .text = "2s", .unit = Unit::kMicroseconds, .value = 2'000'000},
    {.name = "AMinuteIsRead", .text = "1min", .unit = Unit::kMicroseconds, .value = 60'000'000},
    {.name = "AnHourIsRead", .text = "1h", .unit = Unit::kMicroseconds, .value = 3'600'000'000},
    {.name = "ANegativeHourIsRead",
     .text = "-1h",
     .unit = Unit::kMicroseconds,
     .value = -3'600'000'000},
    {.name = "AnUpperCaseSuffixIsRefused",
     .text = "1MS",
     .unit = Unit::kMicroseconds,
     .value = std::nullopt},
    {.name = "ASizeIsRefusedAsADuration",
     .text = "1MiB",
     .unit = Unit::kMicroseconds,
     .value = std::nullopt},
    {.name = "ADurationThatOverflowsIsRefused",
     .text = "2562047788015215h",
     .unit = Unit::kMicroseconds,
     .value = std::nullopt},
    {.name = "BytesAreRead", .text = "7B", .unit = Unit::kBytes, .value = 7},
    {.name = "AKibibyteIsRead", .text = "1KiB", .unit = Unit::kBytes, .value = 1024},
    {.name = "MebibytesAreRead", .text = "64MiB", .unit = Unit::kBytes, .value = 64 << 20},
    {.name = "GibibytesAreRead", .text = "3GiB", .unit = Unit::kBytes, .value = int64_t{3} << 30},
    {.name = "TebibytesAreRead", .text = "16TiB", .unit = Unit::kBytes, .value = int64_t{16} << 40},
    {.name = "ADecimalSizeIsRefused", .text = "1MB", .unit = Unit::kBytes, .value = std::nullopt},
    {.name = "ASizeThatOverflowsIsRefused",
     .text = "8388608TiB",
     .unit = Unit::kBytes,
     .value = std::nullopt},
};

SLUICE_TABLE(QuantityTable, kQuantityRows);

TEST(Quantity, WritesTheLargestExactSuffix) {
  EXPECT_EQ(FormatQuantity(0, Unit::kMicroseconds), "0");
  EXPECT_EQ(FormatQuantity(1500, Unit::kMicroseconds), "1500us");
  EXPECT_EQ(FormatQuantity(90'000'000, Unit::kMicroseconds), "90s");
  EXPECT_EQ(FormatQuantity(1 << 20, Unit::kBytes), "1MiB");
  EXPECT_EQ(FormatQuantity((1 << 20) + 1, Unit::kBytes), "1048577B");
  EXPECT_EQ(FormatQuantity(1 << 20, Unit::kNone), "1048576");
}

TEST(Quantity, WrittenValuesAreReadBack) {
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

TEST(Integer, RefusesNumbersOutsideTheRangeAndKeepsTheValue) {
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

TEST(Path, IsBoundedInLengthAndMayBeEmpty) {
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

TEST(Name, RefusesOtherCharactersAndTooManyOfThem) {
  std::string value;
  const Name kind{4};
  EXPECT_TRUE(kind.Parse("a_.-", &value));
  for (const char* bad : {"", "abcde", "a/b", "a b", "\xc3\xa9", "a\n"}) {
    EXPECT_FALSE(kind.Parse(bad, &value)) << bad;
  }
}

struct DeviceNameRow {
  const char* name;
  const char* text;
  std::optional<DeviceChoice> value;
  const char* formatted = "";
};

class DeviceNameTable : public TableTest<DeviceNameRow> {};

TEST_P(DeviceNameTable, IsReadAndWrittenOrRefused) {
  DeviceChoice value{DeviceChoice::Kind::kCuda, 99};
  ASSERT_EQ(DeviceName{}.Parse(row().text, &value), row().value.has_value());
  if (!row().value.has_value()) {
    EXPECT_EQ(value.index, 99);
    return;
  }
  EXPECT_EQ(value.kind, row().value->kind);
  EXPECT_EQ(value.index, row().value->index);
  EXPECT_EQ(DeviceName{}.Format(value), row().formatted);
}

using DeviceKind = DeviceChoice::Kind;
const DeviceNameRow kDeviceNameRows[] = {
    {.name = "AutoIsRead",
     .text = "auto",
     .value = DeviceChoice{DeviceKind::kAuto},
     .formatted = "auto"},
    {.name = "CpuIsRead",
     .text = "cpu",
     .value = DeviceChoice{DeviceKind::kCpu},
     .formatted = "cpu"},
    {.name = "CudaWithoutIndexIsTheFirstGpu",
     .text = "cuda",
     .value = DeviceChoice{DeviceKind::kCuda, 0},
     .formatted = "\"cuda:0\""},
    {.name = "CudaWithIndexIsRead",
     .text = "cuda:7",
     .value = DeviceChoice{DeviceKind::kCuda, 7},
     .formatted = "\"cuda:7\""},
    {.name = "TheLastIndexIsRead",
     .text = "cuda:1023",
     .value = DeviceChoice{DeviceKind::kCuda, 1023},
     .formatted = "\"cuda:1023\""},
    {.name = "AnIndexAboveTheLastIsRefused", .text = "cuda:1024", .value = std::nullopt},
    {.name = "ANegativeIndexIsRefused", .text = "cuda:-1", .value = std::nullopt},
    {.name = "AnEmptyIndexIsRefused", .text = "cuda:", .value = std::nullopt},
    {.name = "AnIndexWithoutColonIsRefused", .text = "cuda1", .value = std::nullopt},
    {.name = "CpuWithIndexIsRefused", .text = "cpu:0", .value = std::nullopt},
    {.name = "AnotherWordIsRefused", .text = "gpu", .value = std::nullopt},
    {.name = "AnEmptyTextIsRefused", .text = "", .value = std::nullopt},
};

SLUICE_TABLE(DeviceNameTable, kDeviceNameRows);

struct AttentionVariantRow {
  const char* name;
  const char* text;
  std::optional<AttentionVariant> value;
  const char* formatted = "";
};

class AttentionVariantTable : public TableTest<AttentionVariantRow> {};

TEST_P(AttentionVariantTable, IsReadAndWrittenOrRefused) {
  AttentionVariant value{AttentionVariant::Kind::kSplit, 77};
  ASSERT_EQ(AttentionVariantWord{}.Parse(row().text, &value), row().value.has_value());
  if (!row().value.has_value()) {
    EXPECT_EQ(value.parts, 77);
    return;
  }
  EXPECT_EQ(value, *row().value);
  EXPECT_EQ(AttentionVariantWord{}.Format(value), row().formatted);
}

using Variant = AttentionVariant::Kind;
const AttentionVariantRow kAttentionVariantRows[] = {
    {.name = "AutoIsRead", .text = "auto", .value = {{Variant::kAuto}}, .formatted = "auto"},
    {.name = "OnePassIsRead",
     .text = "one_pass",
     .value = {{Variant::kOnePass}},
     .formatted = "one_pass"},
    {.name = "TwoPassIsRead",
     .text = "two_pass",
     .value = {{Variant::kTwoPass}},
     .formatted = "two_pass"},
    {.name = "SplitHasANumber",
     .text = "split:8",
     .value = {{Variant::kSplit, 8}},
     .formatted = "\"split:8\""},
    {.name = "SplitMayBeAuto",
     .text = "split:auto",
     .value = {{Variant::kSplit, 0}},
     .formatted = "\"split:auto\""},
    {.name = "TheMostPartsAreRead",
     .text = "split:1024",
     .value = {{Variant::kSplit, 1024}},
     .formatted = "\"split:1024\""},
    {.name = "MorePartsAreRefused", .text = "split:1025", .value = std::nullopt},
    {.name = "OnePartIsRefused", .text = "split:1", .value = std::nullopt},
    {.name = "NegativePartsAreRefused", .text = "split:-2", .value = std::nullopt},
    {.name = "SplitWithoutNumberIsRefused", .text = "split", .value = std::nullopt},
    {.name = "AnEmptyNumberIsRefused", .text = "split:", .value = std::nullopt},
    {.name = "ATailIsRefused", .text = "split:8x", .value = std::nullopt},
    {.name = "ANumberElsewhereIsRefused", .text = "one_pass:2", .value = std::nullopt},
    {.name = "AnotherVariantIsRefused", .text = "three_pass", .value = std::nullopt},
};

SLUICE_TABLE(AttentionVariantTable, kAttentionVariantRows);

TEST(Quote, EscapesCharactersThatBreakALine) {
  EXPECT_EQ(Quote("a\"b\\c\n\x01\x7f\xc3\xa9"), "\"a\\\"b\\\\c\\x0a\\x01\\x7f\xc3\xa9\"");
  EXPECT_EQ(Quote("\xc2\x9b[2J"), "\"\\x9b[2J\"");  // a control of a terminal, as YAML writes it
}

TEST(Quote, IsUtf8ForAnyBytes) {
  EXPECT_EQ(Quote("\xc3\xa9\xc3"), "\"\xc3\xa9\\xc3\"");  // cut short
  EXPECT_EQ(Quote("\xed\xa0\x80"), "\"\\xed\\xa0\\x80\"");
}

}  // namespace
}  // namespace sluice
