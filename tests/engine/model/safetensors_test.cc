#include "engine/model/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tests/support/checkpoint_writer.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::SafetensorsFile;

TEST(SafetensorsTest, EntriesInPlaceOrder) {
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

TEST(SafetensorsTest, NoTensors) {
  const auto entries = ParseSafetensors(SafetensorsFile("{}", ""));
  ASSERT_TRUE(entries.ok());
  EXPECT_THAT(*entries, IsEmpty());
}

struct Hostile {
  const char* header;
  size_t data_bytes;
  const char* message;
};

class HostileSafetensorsTest : public ::testing::TestWithParam<Hostile> {};

TEST_P(HostileSafetensorsTest, IsRefused) {
  SCOPED_TRACE(GetParam().header);
  const std::string file =
      SafetensorsFile(GetParam().header, std::string(GetParam().data_bytes, 'd'));
  const auto entries = ParseSafetensors(file);
  EXPECT_EQ(entries.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(entries.status().message()), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Headers, HostileSafetensorsTest,
    ::testing::Values(
        Hostile{"", 0, "bad JSON syntax"}, Hostile{"{", 0, "bad JSON syntax"},
        Hostile{"[]", 0, "not an object"}, Hostile{"{} x", 0, "bad JSON syntax"},
        Hostile{R"({"t": 1})", 0, "exactly dtype, shape and data_offsets"},
        Hostile{R"({"t": {"dtype": "F32", "shape": [1]}})", 4, "exactly dtype, shape and"},
        Hostile{R"({"t": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], "x": 0}})", 4,
                "exactly dtype, shape and data_offsets"},
        Hostile{R"({"": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})", 4,
                "a name must have 1 to 512 bytes"},
        Hostile{R"({"t": {"dtype": "F33", "shape": [1], "data_offsets": [0, 4]}})", 4,
                "tensor t: unknown dtype"},
        Hostile{R"({"t": {"dtype": 4, "shape": [1], "data_offsets": [0, 4]}})", 4,
                "tensor t: unknown dtype"},
        Hostile{R"({"t": {"dtype": "F32", "shape": 1, "data_offsets": [0, 4]}})", 4,
                "shape is not a list"},
        Hostile{R"({"t": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}})", 4,
                "shape has a value that is no size"},
        Hostile{R"({"t": {"dtype": "F32", "shape": [1.0], "data_offsets": [0, 4]}})", 4,
                "shape has a value that is no size"},
        Hostile{R"({"t": {"dtype": "F32", "shape": [18446744073709551615],
                  "data_offsets": [0, 4]}})",
                4, "shape has a value that is no size"},
        Hostile{R"({"t": {"dtype": "F32", "shape": [1,1,1,1,1,1,1,1,1], "data_offsets": [0, 4]}})",
                4, "more than 8 dimensions"},
        Hostile{R"({"t": {"dtype": "F32", "shape": [4294967296, 4294967297],
                  "data_offsets": [0, 4]}})",
                4, "need more than 2^64"},
        // 2^62 elements of 4 bytes are 0 bytes modulo 2^64.
        Hostile{R"({"t": {"dtype": "F32", "shape": [4611686018427387904],
                  "data_offsets": [0, 0]}})",
                0, "need more than 2^64"},
        Hostile{R"({"t": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}})", 4,
                "span 4 bytes, its shape and dtype need 8"},
        Hostile{R"({"t": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})", 7,
                "data_offsets [0, 8] exceed the 7 bytes"},
        Hostile{R"({"t": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}})", 4,
                "data_offsets [4, 0] exceed"},
        Hostile{R"({"t": {"dtype": "F32", "shape": [1],
                  "data_offsets": [18446744073709551612, 18446744073709551615]}})",
                4, "exceed the 4 bytes"},
        Hostile{R"({"t": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}})", 4,
                "data_offsets is not a pair"},
        Hostile{R"({"t": {"dtype": "F32", "shape": [1], "data_offsets": [0]}})", 4,
                "data_offsets is not a pair"},
        Hostile{R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                  "b": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}})",
                8, "tensor b: overlaps"},
        Hostile{R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
                  "b": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})",
                4, "overlaps"},
        Hostile{R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}})", 8,
                "tensor a: unused bytes before it"},
        Hostile{R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})", 9,
                "5 bytes after the last tensor"},
        Hostile{R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
                  "a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}})",
                8, "key \"a\" appears twice"},
        Hostile{R"({"a": {"dtype": "F32", "shape": [[[1]]], "data_offsets": [0, 4]}})", 4,
                "nested deeper"},
        Hostile{"{\"\xff\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0, 4]}}", 4,
                "bad JSON syntax"},
        Hostile{R"({"a\u0000b\u001b": {"dtype": "F99", "shape": [1], "data_offsets": [0, 4]}})", 4,
                "tensor a\\000b\\033: unknown dtype"},
        Hostile{R"({"a": {"dtype": "F32", "shape": [1e0], "data_offsets": [0, 4]}})", 4,
                "shape has a value that is no size"},
        Hostile{R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4e0]}})", 4,
                "data_offsets is not a pair"},
        Hostile{R"({"a": {"dtype": null, "shape": [1], "data_offsets": [0, 4]}})", 4,
                "unknown dtype"},
        Hostile{R"({"a": null})", 0, "exactly dtype, shape and data_offsets"}));

TEST(SafetensorsTest, HeaderSizeIsCheckedFirst) {
  EXPECT_THAT(std::string(ParseSafetensors("1234567").status().message()),
              HasSubstr("no safetensors header size"));
  std::string file = SafetensorsFile("{}", "");
  file[0] = 3;
  EXPECT_THAT(std::string(ParseSafetensors(file).status().message()),
              HasSubstr("header of 3 bytes, the limit is 2"));
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

// Whatever one flipped byte does, what is accepted stays inside the file.
TEST(SafetensorsTest, FlippedBytesStayInside) {
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
