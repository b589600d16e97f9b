#include "engine/model/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tests/support/checkpoint_writer.h"
#include "tests/support/table.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::SafetensorsFile;

TEST(SafetensorsTest, ReturnsEntriesInTheOrderOfTheirPlaces) {
  const std::string file = SafetensorsFile(
      {{"z", "F32", {1, 2}, "abcdefgh"}, {"none", "BF16", {3, 0}, ""}, {"a", "I8", {}, "x"}});
  const auto entries = ParseSafetensors(file);
  ASSERT_TRUE(entries.ok()) << entries.status();
  ASSERT_EQ(entries->size(), 3u);
  EXPECT_EQ((*entries)[0].name, "z");
  EXPECT_EQ((*entries)[0].dtype, "F32");
  EXPECT_THAT((*entries)[0].shape, ElementsAre(1, 2));
  EXPECT_EQ((*entries)[0].data, "abcdefgh");
  EXPECT_THAT((*entries)[1].data, IsEmpty());
  EXPECT_EQ((*entries)[2].data, "x");
  EXPECT_THAT((*entries)[2].shape, IsEmpty());
}

TEST(SafetensorsTest, AFileMayHaveNoTensors) {
  const auto entries = ParseSafetensors(SafetensorsFile("{}", ""));
  ASSERT_TRUE(entries.ok());
  EXPECT_THAT(*entries, IsEmpty());
}

struct HostileSafetensorsRow {
  const char* name;
  const char* header;
  size_t data_bytes;
  const char* error;
};
class HostileSafetensorsTable : public TableTest<HostileSafetensorsRow> {};

TEST_P(HostileSafetensorsTable, TheErrorNamesTheFault) {
  const auto entries =
      ParseSafetensors(SafetensorsFile(row().header, std::string(row().data_bytes, 'd')));
  EXPECT_EQ(entries.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(entries.status().message()), HasSubstr(row().error));
}

const HostileSafetensorsRow kHostileSafetensorsRows[] = {
    {.name = "AnEmptyHeaderIsRefused", .header = "", .data_bytes = 0, .error = "bad JSON syntax"},
    {.name = "ABraceAloneIsRefused", .header = "{", .data_bytes = 0, .error = "bad JSON syntax"},
    {.name = "AListIsRefused", .header = "[]", .data_bytes = 0, .error = "not an object"},
    {.name = "TextBehindTheObjectIsRefused",
     .header = "{} x",
     .data_bytes = 0,
     .error = "bad JSON syntax"},
    {.name = "ATensorThatIsANumberIsRefused",
     .header = R"({"t": 1})",
     .data_bytes = 0,
     .error = "exactly dtype, shape and data_offsets"},
    {.name = "ATensorWithoutOffsetsIsRefused",
     .header = R"({"t": {"dtype": "F32", "shape": [1]}})",
     .data_bytes = 4,
     .error = "exactly dtype, shape and"},
    {.name = "AnUnknownKeyIsRefused",
     .header = R"({"t": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], "x": 0}})",
     .data_bytes = 4,
     .error = "exactly dtype, shape and data_offsets"},
    {.name = "AnEmptyNameIsRefused",
     .header = R"({"": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})",
     .data_bytes = 4,
     .error = "a name must have 1 to 512 bytes"},
    {.name = "AnUnknownDtypeIsRefused",
     .header = R"({"t": {"dtype": "F33", "shape": [1], "data_offsets": [0, 4]}})",
     .data_bytes = 4,
     .error = "tensor t: unknown dtype"},
    {.name = "ADtypeThatIsANumberIsRefused",
     .header = R"({"t": {"dtype": 4, "shape": [1], "data_offsets": [0, 4]}})",
     .data_bytes = 4,
     .error = "tensor t: unknown dtype"},
    {.name = "AShapeThatIsANumberIsRefused",
     .header = R"({"t": {"dtype": "F32", "shape": 1, "data_offsets": [0, 4]}})",
     .data_bytes = 4,
     .error = "shape is not a list"},
    {.name = "ANegativeSizeIsRefused",
     .header = R"({"t": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}})",
     .data_bytes = 4,
     .error = "shape has a value that is not an integer of at least 0"},
    {.name = "AFractionalSizeIsRefused",
     .header = R"({"t": {"dtype": "F32", "shape": [1.0], "data_offsets": [0, 4]}})",
     .data_bytes = 4,
     .error = "shape has a value that is not an integer of at least 0"},
    {.name = "ASizeOf64BitsIsRefused",
     .header = R"({"t": {"dtype": "F32", "shape": [18446744073709551615],
                  "data_offsets": [0, 4]}})",
     .data_bytes = 4,
     .error = "shape has a value that is not an integer of at least 0"},
    {.name = "ATensorOfNineDimensionsIsRefused",
     .header = R"({"t": {"dtype": "F32", "shape": [1,1,1,1,1,1,1,1,1], "data_offsets": [0, 4]}})",
     .data_bytes = 4,
     .error = "more than 8 dimensions"},
    {.name = "ElementsThatOverflowAreRefused",
     .header = R"({"t": {"dtype": "F32", "shape": [4294967296, 4294967297],
                  "data_offsets": [0, 4]}})",
     .data_bytes = 4,
     .error = "need more than 2^64"},
    // 2^62 elements of 4 bytes are 0 bytes modulo 2^64.
    {.name = "BytesThatOverflowToZeroAreRefused",
     .header = R"({"t": {"dtype": "F32", "shape": [4611686018427387904],
                  "data_offsets": [0, 0]}})",
     .data_bytes = 0,
     .error = "need more than 2^64"},
    {.name = "FewerBytesThanTheShapeNeedsAreRefused",
     .header = R"({"t": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}})",
     .data_bytes = 4,
     .error = "span 4 bytes, its shape and dtype need 8"},
    {.name = "OffsetsBeyondTheDataAreRefused",
     .header = R"({"t": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})",
     .data_bytes = 7,
     .error = "data_offsets [0, 8] exceed the 7 bytes"},
    {.name = "OffsetsThatDecreaseAreRefused",
     .header = R"({"t": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}})",
     .data_bytes = 4,
     .error = "data_offsets [4, 0] exceed"},
    {.name = "OffsetsOf64BitsAreRefused",
     .header = R"({"t": {"dtype": "F32", "shape": [1],
                  "data_offsets": [18446744073709551612, 18446744073709551615]}})",
     .data_bytes = 4,
     .error = "exceed the 4 bytes"},
    {.name = "ANegativeOffsetIsRefused",
     .header = R"({"t": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}})",
     .data_bytes = 4,
     .error = "data_offsets is not a list of two integers"},
    {.name = "ATensorOfOneOffsetIsRefused",
     .header = R"({"t": {"dtype": "F32", "shape": [1], "data_offsets": [0]}})",
     .data_bytes = 4,
     .error = "data_offsets is not a list of two integers"},
    {.name = "ATensorThatOverlapsAnotherIsRefused",
     .header = R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                  "b": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}})",
     .data_bytes = 8,
     .error = "tensor b: overlaps"},
    {.name = "TwoTensorsInOnePlaceAreRefused",
     .header = R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
                  "b": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})",
     .data_bytes = 4,
     .error = "overlaps"},
    {.name = "UnusedBytesBeforeAreRefused",
     .header = R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}})",
     .data_bytes = 8,
     .error = "tensor a: unused bytes before it"},
    {.name = "UnusedBytesAfterAreRefused",
     .header = R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})",
     .data_bytes = 9,
     .error = "5 bytes after the last tensor"},
    {.name = "ANameGivenTwiceIsRefused",
     .header = R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
                  "a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}})",
     .data_bytes = 8,
     .error = "key \"a\" appears twice"},
    {.name = "ADeeplyNestedShapeIsRefused",
     .header = R"({"a": {"dtype": "F32", "shape": [[[1]]], "data_offsets": [0, 4]}})",
     .data_bytes = 4,
     .error = "nested deeper"},
    {.name = "ANameThatIsNoUtf8IsRefused",
     .header = "{\"\xff\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0, 4]}}",
     .data_bytes = 4,
     .error = "bad JSON syntax"},
    {.name = "ANameWithControlCharactersIsRefused",
     .header = R"({"a\u0000b\u001b": {"dtype": "F99", "shape": [1], "data_offsets": [0, 4]}})",
     .data_bytes = 4,
     .error = "tensor a\\000b\\033: unknown dtype"},
    {.name = "ASizeWithAnExponentIsRefused",
     .header = R"({"a": {"dtype": "F32", "shape": [1e0], "data_offsets": [0, 4]}})",
     .data_bytes = 4,
     .error = "shape has a value that is not an integer of at least 0"},
    {.name = "AnOffsetWithAnExponentIsRefused",
     .header = R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4e0]}})",
     .data_bytes = 4,
     .error = "data_offsets is not a list of two integers"},
    {.name = "ADtypeOfNullIsRefused",
     .header = R"({"a": {"dtype": null, "shape": [1], "data_offsets": [0, 4]}})",
     .data_bytes = 4,
     .error = "unknown dtype"},
    {.name = "ATensorOfNullIsRefused",
     .header = R"({"a": null})",
     .data_bytes = 0,
     .error = "exactly dtype, shape and data_offsets"},
};
SLUICE_TABLE(HostileSafetensorsTable, kHostileSafetensorsRows);

TEST(SafetensorsTest, HeaderSizeIsCheckedFirst) {
  EXPECT_THAT(std::string(ParseSafetensors("1234567").status().message()),
              HasSubstr("no safetensors header size"));
  std::string file = SafetensorsFile("{}", "");
  file[0] = 3;
  EXPECT_THAT(std::string(ParseSafetensors(file).status().message()),
              HasSubstr("the file of 10 bytes ends within its header of 3; was it copied"));
  for (int i = 0; i < 8; ++i) file[i] = '\xff';
  EXPECT_THAT(std::string(ParseSafetensors(file).status().message()),
              HasSubstr("header of 18446744073709551615 bytes"));
  const std::string huge((size_t{16} << 20) + 1, ' ');
  EXPECT_THAT(std::string(ParseSafetensors(SafetensorsFile(huge, "")).status().message()),
              HasSubstr("the limit is 16777216"));
}

TEST(SafetensorsTest, EveryTruncationIsRefused) {
  const std::string file =
      SafetensorsFile({{"a", "F32", {2}, "abcdefgh"}, {"b", "BF16", {1}, "xy"}});
  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_FALSE(ParseSafetensors(std::string_view(file).substr(0, size)).ok()) << size;
  }
}

// If a file with a flipped byte is accepted, all its tensors are inside the file.
TEST(SafetensorsTest, FlippedBytesNeverPlaceATensorOutsideTheFile) {
  const std::string good =
      SafetensorsFile({{"a", "F32", {2}, "abcdefgh"}, {"b", "BF16", {1}, "xy"}});
  const uint64_t seed = 20240817;
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 20000; ++i) {
    std::string file = good;
    file[random() % file.size()] = static_cast<char>(random());
    const auto entries = ParseSafetensors(file);
    if (!entries.ok()) continue;
    for (const SafetensorsEntry& entry : *entries) {
      ASSERT_GE(entry.data.data(), file.data());
      ASSERT_LE(entry.data.data() + entry.data.size(), file.data() + file.size());
    }
  }
}

}  // namespace
}  // namespace sluice
