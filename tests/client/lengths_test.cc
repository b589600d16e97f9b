#include "client/lengths.h"

#include <gtest/gtest.h>

#include <sstream>

#include "tests/support/table.h"

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

struct BadLengthsRow {
  const char* name;
  const char* text;
  const char* column = "";
  const char* error;
};
class BadLengthsTable : public TableTest<BadLengthsRow> {};

TEST_P(BadLengthsTable, AreNamedWithTheirLine) {
  EXPECT_EQ(Read(row().text, row().column).status(), absl::InvalidArgumentError(row().error));
}

const BadLengthsRow kBadLengthsRows[] = {
    {.name = "AnEmptyFile", .text = "", .error = "f: no lengths"},
    {.name = "AHeadingAlone", .text = "heading\n", .error = "f: no lengths"},
    {.name = "ALengthOfZero",
     .text = "1\n0\n",
     .error = "f:2: expected a length in [1, 100], got \"0\"; if a line has several values, name "
              "their column with --column"},
    {.name = "AWordBehindABlankLine",
     .text = "1\n\nx\n",
     .error = "f:3: expected a length in [1, 100], got \"x\"; if a line has several values, name "
              "their column with --column"},
    {.name = "ALengthAboveTheMaximum",
     .text = "1\n101\n",
     .error = "f:2: expected a length in [1, 100], got \"101\"; raise --max-batch-tokens, or "
              "reduce longer sequences with --clip"},
    {.name = "ANegativeLength",
     .text = "1\n-5\n",
     .error = "f:2: expected a length in [1, 100], got \"-5\"; if a line has several values, name "
              "their column with --column"},
    {.name = "AnUnknownColumn",
     .text = "a,b\n1,2\n",
     .column = "c",
     .error = "f:1: no column \"c\" in the first line; set --column to a name from there or to a "
              "number"},
    {.name = "ColumnZero",
     .text = "1,2\n",
     .column = "0",
     .error = "f:1: --column: expected a number of at least 1, got 0"},
    {.name = "ALineWithoutTheColumn",
     .text = "1,2\n3\n",
     .column = "2",
     .error = "f:2: expected a length in [1, 100], got \"\"; if a line has several values, name "
              "their column with --column"},
};
SLUICE_TABLE(BadLengthsTable, kBadLengthsRows);

TEST(ReadLengths, AHugeLineIsAnErrorWithBoundedMemory) {
  EXPECT_EQ(Read("1\n" + std::string(1 << 20, '7')).status(),
            absl::InvalidArgumentError("f:2: the line has more than 65536 bytes"));
}

}  // namespace
}  // namespace sluice::client
