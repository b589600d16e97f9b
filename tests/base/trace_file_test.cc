#include "base/trace_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/support/table.h"

namespace sluice {
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

TEST(FormatTrace, IsReadBackInBothForms) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  std::vector<TraceRow> rows;
  for (int i = 0; i < 200; ++i) {
    // Both formats keep microseconds.
    const double gap = i == 0 ? 0 : static_cast<double>(random() % 3'000'000) * 1e-6;
    rows.push_back({.arrival_s = (rows.empty() ? 0 : rows.back().arrival_s) + gap,
                    .input_tokens = static_cast<int32_t>(random() % 5000),
                    .output_tokens = static_cast<int32_t>(random() % 700)});
  }
  for (const std::string& text : {FormatJsonLines(rows), FormatCsv(rows)}) {
    const auto read = ParseTrace(text);
    ASSERT_TRUE(read.ok()) << read.status();
    ASSERT_EQ(read->size(), rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_NEAR((*read)[i].arrival_s, rows[i].arrival_s, 1e-6) << i;
      EXPECT_EQ((*read)[i].input_tokens, rows[i].input_tokens) << i;
      EXPECT_EQ((*read)[i].output_tokens, rows[i].output_tokens) << i;
    }
  }
}

TEST(FormatTrace, GivesEveryBlockOfAPromptAUniqueHash) {
  EXPECT_EQ(FormatJsonLines({{.arrival_s = 0, .input_tokens = 513, .output_tokens = 7},
                             {.arrival_s = 1.5, .input_tokens = 512, .output_tokens = 0}}),
            "{\"timestamp\": 0.000, \"input_length\": 513, \"output_length\": 7, "
            "\"hash_ids\": [0, 1]}\n"
            "{\"timestamp\": 1500.000, \"input_length\": 512, \"output_length\": 0, "
            "\"hash_ids\": [2]}\n");
}

TEST(ParseTrace, ReadsJsonLines) {
  const auto rows = ParseTrace(
      "\n{\"timestamp\": 27482, \"input_length\": 6955, \"output_length\": 52, "
      "\"hash_ids\": [46, 47]}\r\n"
      "\n{\"timestamp\": 30535, \"input_length\": 6472}\n");
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_EQ((*rows)[0].arrival_s, 0);
  EXPECT_EQ((*rows)[0].input_tokens, 6955);
  EXPECT_EQ((*rows)[0].output_tokens, 52);
  EXPECT_NEAR((*rows)[1].arrival_s, 3.053, 1e-9);
  EXPECT_EQ((*rows)[1].output_tokens, 0);
  const auto error = [](const std::string& lines) {
    return std::string(ParseTrace(lines).status().message());
  };
  EXPECT_THAT(error("{\"timestamp\": 1}"), testing::HasSubstr("line 1: "));
  EXPECT_THAT(error("{\"timestamp\": 1}"), testing::HasSubstr("input_length"));
  EXPECT_THAT(error("{\"timestamp\": 2, \"input_length\": 1}\n"
                    "{\"timestamp\": 1, \"input_length\": 1}\n"),
              testing::HasSubstr("line 2: timestamp decreases"));
  EXPECT_THAT(error("{\"timestamp\": 2, \"input_length\": 1}\n[]\n"),
              testing::HasSubstr("line 2: expected an object"));
}

TEST(ParseTrace, OutputTokensAreOptional) {
  const auto rows = ParseTrace("arrival_s,input_tokens\n0,8");
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ((*rows)[0].output_tokens, 0);
}

struct BadTraceRow {
  const char* name;
  const char* text;
  const char* error;
};
class BadTraceTable : public TableTest<BadTraceRow> {};

TEST_P(BadTraceTable, IsNamedWithItsLine) {
  EXPECT_THAT(std::string(ParseTrace(row().text).status().message()),
              ::testing::HasSubstr(row().error));
}

const BadTraceRow kBadTraceRows[] = {
    {.name = "AnEmptyFile", .text = "", .error = "no column arrival_s"},
    {.name = "AMissingColumn", .text = "arrival_s\n1", .error = "no column input_tokens"},
    {.name = "ATraceWithoutRows", .text = "arrival_s,input_tokens\n", .error = "no row"},
    {.name = "ADecreasingArrival",
     .text = "arrival_s,input_tokens\n1,2\n0.5,2",
     .error = "line 3: arrival_s decreases; sort the rows by arrival_s"},
    {.name = "ALineThatIsShort",
     .text = "arrival_s,input_tokens\n1",
     .error = "line 2: input_tokens"},
    {.name = "ANegativeInput",
     .text = "arrival_s,input_tokens\n1,-2",
     .error = "line 2: input_tokens"},
    {.name = "AnInputThatIsTooLong",
     .text = "arrival_s,input_tokens\n1,99999999",
     .error = "line 2: input_tokens"},
    {.name = "AnArrivalThatIsNotANumber",
     .text = "arrival_s,input_tokens\nnan,2",
     .error = "line 2: arrival_s"},
    {.name = "AnInfiniteArrival",
     .text = "arrival_s,input_tokens\ninf,2",
     .error = "line 2: arrival_s"},
    {.name = "AnArrivalThatIsTooLate",
     .text = "arrival_s,input_tokens\n1e300,2",
     .error = "line 2: arrival_s"},
    {.name = "AnOutputThatIsAWord",
     .text = "arrival_s,input_tokens,output_tokens\n1,2,x",
     .error = "line 2: output_tokens"},
    {.name = "AWordBehindBlankLines",
     .text = "arrival_s,input_tokens\n\n\n1,x",
     .error = "line 4: input_tokens"},
};
SLUICE_TABLE(BadTraceTable, kBadTraceRows);

TEST(ParseTrace, RejectsLongLines) {
  const std::string commas(70'000, ',');
  EXPECT_EQ(ParseTrace(commas).status(),
            absl::InvalidArgumentError("line 1: has 70000 bytes; the limit is 65536"));
  EXPECT_EQ(ParseTrace("arrival_s,input_tokens\n1,2\n" + commas + "\n").status(),
            absl::InvalidArgumentError("line 3: has 70000 bytes; the limit is 65536"));
}

TEST(ParseLengthCounts, RejectsInvalidCounts) {
  EXPECT_TRUE(ParseLengthCounts("count,tokens\n2,5\n").ok());
  for (const char* text : {"tokens\n1", "tokens,count\n0,1", "tokens,count\n5,-1",
                           "tokens,count\n5,0\n", "tokens,count\n"}) {
    EXPECT_EQ(ParseLengthCounts(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace sluice
