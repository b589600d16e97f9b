#include "client/lengths.h"

#include <gtest/gtest.h>

#include <sstream>

namespace sluice::client {
namespace {

absl::StatusOr<std::vector<int32_t>> Read(const std::string& text, const std::string& column = "",
                                          bool clip = false) {
  std::istringstream in(text);
  return ReadLengths(&in, "f", {.column = column, .maximum = 100, .clip = clip});
}

TEST(ReadLengths, ReadsLinesAndColumns) {
  using Lengths = std::vector<int32_t>;
  EXPECT_EQ(*Read("1\n 20 \r\n\n100"), (Lengths{1, 20, 100}));
  EXPECT_EQ(*Read("length\n7\n"), (Lengths{7}));
  EXPECT_EQ(*Read("t,in,out\na,5,6\nb,7,8\n", "in"), (Lengths{5, 7}));
  EXPECT_EQ(*Read("t,in,out\na,5,6\nb,7,8\n", "3"), (Lengths{6, 8}));
  EXPECT_EQ(*Read("9,5\n9,7\n", "2"), (Lengths{5, 7}));
  EXPECT_EQ(*Read("5\n101\n99999999999\n", "", true), (Lengths{5, 100, 100}));
}

TEST(ReadLengths, ErrorsNameTheLine) {
  struct Case {
    const char* text;
    const char* column;
    const char* message;
  };
  const Case cases[] = {
      {"", "", "f: no lengths"},
      {"heading\n", "", "f: no lengths"},
      {"1\n0\n", "", "f:2: expected a length in [1, 100], got \"0\""},
      {"1\n\nx\n", "", "f:3: expected a length in [1, 100], got \"x\""},
      {"1\n101\n", "", "f:2: expected a length in [1, 100], got \"101\""},
      {"1\n-5\n", "", "f:2: expected a length in [1, 100], got \"-5\""},
      {"a,b\n1,2\n", "c", "f:1: no column \"c\" in the first line"},
      {"1,2\n", "0", "f:1: columns count from 1"},
      {"1,2\n3\n", "2", "f:2: expected a length in [1, 100], got \"\""},
  };
  for (const Case& c : cases) {
    const auto lengths = Read(c.text, c.column);
    EXPECT_EQ(lengths.status(), absl::InvalidArgumentError(c.message));
  }
}

TEST(ReadLengths, AHugeLineIsAnErrorAndNotMemory) {
  EXPECT_EQ(Read("1\n" + std::string(1 << 20, '7')).status(),
            absl::InvalidArgumentError("f:2: the line has more than 65536 bytes"));
}

}  // namespace
}  // namespace sluice::client
