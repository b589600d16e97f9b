#include "server/inference/frontend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace sluice {
namespace {

using ::testing::Each;

TEST(TraceparentTest, IsTakenApart) {
  const TraceContext trace =
      ParseTraceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
  EXPECT_EQ(trace.trace_id[0], 0x0a);
  EXPECT_EQ(trace.trace_id[15], 0x9c);
  EXPECT_EQ(trace.parent_id[0], 0xb7);
  EXPECT_EQ(trace.parent_id[7], 0x31);
  EXPECT_EQ(trace.flags, 1);
}

TEST(TraceparentTest, MalformedOnesAreNone) {
  const std::string good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  std::string cases[] = {"", good + "0", good.substr(1), good, good, good, good};
  cases[3][0] = '1';
  cases[4][3] = 'g';
  cases[5][35] = '_';
  cases[6][54] = ' ';
  for (const std::string& header : cases) {
    const TraceContext trace = ParseTraceparent(header);
    EXPECT_THAT(trace.trace_id, Each(0)) << header;
    EXPECT_THAT(trace.parent_id, Each(0)) << header;
    EXPECT_EQ(trace.flags, 0) << header;
  }
}

}  // namespace
}  // namespace sluice
