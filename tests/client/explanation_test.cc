#include "client/explanation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::client {
namespace {

using testing::HasSubstr;

TEST(ExplanationText, TellsWaitsAndStepsInTheOrderOfTime) {
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
  step->set_lookup("not_captured");
  auto* wait = response.add_waits();
  wait->set_at_seconds(0.001);
  wait->set_until_seconds(0.005);
  wait->set_reason("company");
  wait->set_waiting_tokens(6);
  wait->set_waiting_rows(1);
  response.set_total_steps(3);
  EXPECT_EQ(
      ExplanationText("r\n1", response),
      "Request r\\n1 to demo version 1 ended with OK after 9.000 ms, of which it waited 4.000 "
      "ms to run.\n"
      "    1.000 ms  waits: those expected soon save more device time than the delay costs, "
      "until 5.000 ms at the latest; a batch would have held 6 tokens of 1 row\n"
      "    4.000 ms  runs in step 7 for 3.000 ms: 6 tokens of its own, 48 in all of 5 rows, "
      "in bucket 64x8 (75.0% used); launched because nothing more fitted the largest bucket; "
      "the ladder's own choice was still being prepared\n"
      "and 2 more steps.\n");
}

void AddDecode(int64_t number, double start, double seconds, int64_t batch_tokens,
               admin::v1::ExplainResponse* response) {
  auto* step = response->add_steps();
  step->set_step(number);
  step->set_start_seconds(start);
  step->set_replay_seconds(seconds);
  step->mutable_bucket()->set_tokens(16);
  step->mutable_bucket()->set_rows(16);
  step->set_batch_tokens(batch_tokens);
  step->set_batch_rows(static_cast<int32_t>(batch_tokens));
  step->set_own_tokens(1);
  step->set_trigger("idle");
  step->set_lookup("hit");
}

TEST(ExplanationText, TellsAlikeStepsOnce) {
  admin::v1::ExplainResponse response;
  AddDecode(3, 0.001, 0.00005, 1, &response);
  AddDecode(4, 0.002, 0.00007, 1, &response);
  AddDecode(6, 0.003, 0.00006, 1, &response);
  AddDecode(7, 0.004, 0.00006, 2, &response);
  AddDecode(8, 0.005, 0.00006, 2, &response);
  auto* wait = response.add_waits();
  wait->set_at_seconds(0.0045);
  wait->set_until_seconds(-1);
  wait->set_reason("empty");
  response.set_total_steps(5);
  const std::string text = ExplanationText("r", response);
  EXPECT_THAT(text,
              HasSubstr("    1.000 ms  runs in 3 steps, 3 to 6, for 0.050 to 0.070 ms each: "
                        "1 token of its own, 1 in all of 1 row, in bucket 16x16 (6.2% used)"));
  EXPECT_THAT(text, HasSubstr("    4.000 ms  runs in step 7 for 0.060 ms: 1 token of its own, 2 in "
                              "all of 2 rows"));
  EXPECT_THAT(text, HasSubstr("    5.000 ms  runs in step 8"));
}

TEST(ExplanationText, UnknownWordsOfANewerServerAreShownUnchanged) {
  admin::v1::ExplainResponse response;
  response.add_steps()->set_trigger("moon\x1b");
  EXPECT_THAT(ExplanationText("r", response), HasSubstr("because moon\\x1b;"));
}

TEST(ExplanationText, SaysThatARequestNeverRan) {
  admin::v1::ExplainResponse response;
  response.set_status("DEADLINE_EXCEEDED: too late");
  EXPECT_THAT(ExplanationText("r", response), HasSubstr("too late"));
  EXPECT_THAT(ExplanationText("r", response), HasSubstr("It never ran.\n"));
}

}  // namespace
}  // namespace sluice::client
