#include "loadtest/trace/trace_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::load {
namespace {

TEST(ParseTrace, FindsItsColumnsByName) {
  const auto rows = ParseTrace(
      "user,output_tokens,input_tokens,arrival_s\r\n"
      "a,4,17,100.5\r\n"
      "\r\n"
      "b,0,3,101\r\n");
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_EQ((*rows)[0].arrival_s, 0) << "times count from the first row";
  EXPECT_EQ((*rows)[0].input_tokens, 17);
  EXPECT_EQ((*rows)[0].output_tokens, 4);
  EXPECT_EQ((*rows)[1].arrival_s, 0.5);
}

TEST(ParseTrace, NeedsNoOutputTokens) {
  const auto rows = ParseTrace("arrival_s,input_tokens\n0,8");
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ((*rows)[0].output_tokens, 0);
}

TEST(ParseTrace, SaysWhereItIsWrong) {
  const struct {
    const char* text;
    const char* message;
  } cases[] = {
      {"", "no column arrival_s"},
      {"arrival_s\n1", "no column input_tokens"},
      {"arrival_s,input_tokens\n", "no row"},
      {"arrival_s,input_tokens\n1,2\n0.5,2", "line 3: arrival_s decreases"},
      {"arrival_s,input_tokens\n1", "line 2: input_tokens"},
      {"arrival_s,input_tokens\n1,-2", "line 2: input_tokens"},
      {"arrival_s,input_tokens\n1,99999999", "line 2: input_tokens"},
      {"arrival_s,input_tokens\nnan,2", "line 2: arrival_s"},
      {"arrival_s,input_tokens\ninf,2", "line 2: arrival_s"},
      {"arrival_s,input_tokens\n1e300,2", "line 2: arrival_s"},
      {"arrival_s,input_tokens,output_tokens\n1,2,x", "line 2: output_tokens"},
      {"arrival_s,input_tokens\n\n\n1,x", "line 4: input_tokens"},
  };
  for (const auto& each : cases) {
    EXPECT_THAT(std::string(ParseTrace(each.text).status().message()),
                testing::HasSubstr(each.message))
        << each.text;
  }
}

TEST(ParseTrace, BoundsItsLines) {
  const std::string commas(70'000, ',');
  EXPECT_EQ(ParseTrace(commas).status(),
            absl::InvalidArgumentError("line 1: has 70000 bytes, the limit is 65536"));
  EXPECT_EQ(ParseTrace("arrival_s,input_tokens\n1,2\n" + commas + "\n").status(),
            absl::InvalidArgumentError("line 3: has 70000 bytes, the limit is 65536"));
}

TEST(ParseLengthCounts, SaysWhereItIsWrong) {
  EXPECT_TRUE(ParseLengthCounts("count,tokens\n2,5\n").ok());
  for (const char* text : {"tokens\n1", "tokens,count\n0,1", "tokens,count\n5,-1",
                           "tokens,count\n5,0\n", "tokens,count\n"}) {
    EXPECT_EQ(ParseLengthCounts(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace sluice::load
