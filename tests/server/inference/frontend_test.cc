#include "server/inference/frontend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/table.h"

namespace sluice {
namespace {

using ::testing::Each;

TEST(TraceparentTest, IsParsed) {
  const TraceContext trace =
      ParseTraceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
  EXPECT_EQ(trace.trace_id[0], 0x0a);
  EXPECT_EQ(trace.trace_id[15], 0x9c);
  EXPECT_EQ(trace.parent_id[0], 0xb7);
  EXPECT_EQ(trace.parent_id[7], 0x31);
  EXPECT_EQ(trace.flags, 1);
}

struct MalformedTraceparentRow {
  const char* name;
  const char* header;
};
class MalformedTraceparentTable : public TableTest<MalformedTraceparentRow> {};

TEST_P(MalformedTraceparentTable, IsIgnored) {
  const TraceContext trace = ParseTraceparent(row().header);
  EXPECT_THAT(trace.trace_id, Each(0));
  EXPECT_THAT(trace.parent_id, Each(0));
  EXPECT_EQ(trace.flags, 0);
}

const MalformedTraceparentRow kMalformedTraceparentRows[] = {
    {.name = "Empty", .header = ""},
    {.name = "OneDigitTooMany",
     .header = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-010"},
    {.name = "OneDigitTooFew", .header = "0-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
    {.name = "AnotherVersion", .header = "10-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
    {.name = "ALetterBeyondF", .header = "00-gaf7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
    {.name = "AnotherSeparator",
     .header = "00-0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331-01"},
    {.name = "ASpaceAtTheEnd", .header = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0 "},
};
SLUICE_TABLE(MalformedTraceparentTable, kMalformedTraceparentRows);

}  // namespace
}  // namespace sluice
