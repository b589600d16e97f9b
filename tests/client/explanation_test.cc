#include "client/explanation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "client/table.h"

namespace sluice::client {
namespace {

using testing::HasSubstr;
using testing::Not;

// Returns the text with wrapped lines joined again. Checks the width of the lines.
std::string Unwrapped(const std::string& text) {
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    EXPECT_LE(line.size(), kTerminalColumns) << line;
  }
  return absl::StrReplaceAll(text, {{absl::StrCat("\n", std::string(14, ' ')), " "}});
}

TEST(ExplanationText, ListsWaitsAndStepsInOrderOfTime) {
  admin::v1::ExplainResponse response;
  response.set_model_name("demo");
  response.set_model_version("1");
  response.set_status("OK");
  response.set_queue_seconds(0.004);
  response.set_total_seconds(0.009);
  auto* step = response.add_steps();
  step->set_step(7);
  step->set_start_seconds(0.004);
  step->set_replay_seconds(0.003);
  step->mutable_bucket()->set_tokens(64);
  step->mutable_bucket()->set_rows(8);
  step->set_batch_tokens(48);
  step->set_batch_rows(5);
  step->set_own_tokens(6);
  step->set_trigger("full");
  step->set_lookup("not_prepared");
  auto* wait = response.add_waits();
  wait->set_at_seconds(0.001);
  wait->set_until_seconds(0.005);
  wait->set_reason("more_requests");
  wait->set_waiting_tokens(6);
  wait->set_waiting_rows(1);
  response.set_total_steps(3);
  EXPECT_EQ(
      Unwrapped(ExplanationText("r\n1", response)),
      "Request r\\n1 to demo version 1 ended with OK after 9.000 ms, including 4.000 ms of waiting "
      "to run.\n"
      "    1.000 ms  waits: requests expected soon save more device time than the delay costs, "
      "until 5.000 ms at the latest; a batch would have held 6 tokens of 1 row\n"
      "    4.000 ms  runs in step 7 for 3.000 ms: 6 tokens of its own, 48 in total in 5 rows, "
      "in bucket 64x8 (75.0% used); launched because a larger step would not be faster, or does "
      "not fit the largest bucket; the ladder's own choice was still being prepared\n"
      "and 2 more steps.\n");
  response.set_drafted_tokens(8);
  response.set_accepted_tokens(5);
  EXPECT_THAT(ExplanationText("r", response),
              HasSubstr("Its steps checked 8 drafted tokens; 5 were accepted.\n"));
  response.set_draft_source("model");
  EXPECT_THAT(
      ExplanationText("r", response),
      HasSubstr("Its steps checked 8 drafted tokens of the source model; 5 were accepted.\n"));
}

TEST(ExplanationText, MergesEqualStepsAndNamesTheirOtherRequests) {
  admin::v1::ExplainResponse response;
  auto* step = response.add_steps();
  step->set_step(3);
  step->set_last_step(6);
  step->set_steps(3);
  step->set_start_seconds(0.001);
  step->set_replay_seconds(0.00005);
  step->set_longest_replay_seconds(0.00007);
  step->mutable_bucket()->set_tokens(16);
  step->mutable_bucket()->set_rows(16);
  step->set_batch_tokens(5);
  step->set_batch_rows(5);
  step->set_own_tokens(1);
  step->set_trigger("idle");
  step->set_lookup("hit");
  step->set_other_requests(4);
  step->add_shared_with("a\x1b");
  step->add_shared_with("#00ff");
  response.set_total_steps(3);
  const std::string text = Unwrapped(ExplanationText("r", response));
  EXPECT_THAT(text,
              HasSubstr("    1.000 ms  runs in 3 steps, 3 to 6, for 0.050 to 0.070 ms each: 1 "
                        "token of its own, 5 in total in 5 rows, in bucket 16x16 (31.2% used); "
                        "with requests a\\x1b, #00ff and 2 others; launched because "));
  EXPECT_THAT(text, Not(HasSubstr("more step")));
  step->clear_shared_with();
  step->set_other_requests(1);
  EXPECT_THAT(Unwrapped(ExplanationText("r", response)), HasSubstr("; with 1 other; launched"));
  step->add_shared_with("b");
  EXPECT_THAT(Unwrapped(ExplanationText("r", response)), HasSubstr("; with request b; launched"));
}

TEST(ExplanationText, UnknownWordsOfANewerServerAreShownUnchanged) {
  admin::v1::ExplainResponse response;
  response.add_steps()->set_trigger("moon\x1b");
  EXPECT_THAT(Unwrapped(ExplanationText("r", response)), HasSubstr("because moon\\x1b;"));
}

TEST(ExplanationText, ReportsThatARequestNeverRan) {
  admin::v1::ExplainResponse response;
  response.set_status("DEADLINE_EXCEEDED: too late");
  EXPECT_THAT(Unwrapped(ExplanationText("r", response)), HasSubstr("too late"));
  EXPECT_THAT(Unwrapped(ExplanationText("r", response)), HasSubstr("It never ran.\n"));
}

}  // namespace
}  // namespace sluice::client
