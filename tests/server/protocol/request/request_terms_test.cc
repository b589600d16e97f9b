// Tests that the request gets the parameters of its message and the properties of its call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "base/reason.h"
#include "tests/server/protocol/messages.h"
#include "tests/server/protocol/request/validated.h"
#include "tests/support/fake_backend.h"

namespace sluice {
namespace {

using inference::ModelInferRequest;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::IdsRequest;
using testing::kSmallLimits;
using testing::SetInt;
using testing::Validated;

TEST(RequestTermsTest, SamplingParametersReachTheEngine) {
  ModelInferRequest message = IdsRequest({1});
  auto& parameters = *message.mutable_parameters();
  parameters["temperature"].set_double_param(0.5);
  parameters["top_k"].set_int64_param(7);
  parameters["top_p"].set_string_param("0.75");
  parameters["min_p"].set_double_param(0.125);
  parameters["seed"].set_uint64_param(UINT64_MAX);
  parameters["priority"].set_int64_param(1);
  const absl::StatusOr<ValidRequest> valid = Validated(message, {.fresh_seed = 9});
  ASSERT_TRUE(valid.ok()) << valid.status();
  const kernels::SampleParams& sampling = valid->request.spec->sampling;
  EXPECT_EQ(sampling.temperature, 0.5f);
  EXPECT_EQ(sampling.top_k, 7);
  EXPECT_EQ(sampling.top_p, 0.75f);
  EXPECT_EQ(sampling.min_p, 0.125f);
  EXPECT_EQ(sampling.seed, UINT64_MAX);
  EXPECT_EQ(valid->request.spec->priority, 1);
  EXPECT_FALSE(valid->reply.drawn_seed.has_value());
}

TEST(RequestTermsTest, EditsAndStopsReachTheEngineAndTheReply) {
  ModelInferRequest message = IdsRequest({1});
  SetInt(&message, "max_tokens", 9);
  SetInt(&message, "min_tokens", 3);
  auto& parameters = *message.mutable_parameters();
  parameters["stop"].set_string_param("[\"x\", \"yz\"]");
  parameters["stop_token_ids"].set_string_param("[5]");
  parameters["logit_bias"].set_string_param("{\"7\": null}");
  parameters["ignore_eos"].set_bool_param(true);
  parameters["triton_enable_empty_final_response"].set_bool_param(true);
  const absl::StatusOr<ValidRequest> valid = Validated(message);
  ASSERT_TRUE(valid.ok()) << valid.status();
  const StopRules& stop = valid->request.spec->stop;
  EXPECT_THAT(stop.texts, ElementsAre("x", "yz"));
  EXPECT_THAT(stop.ids, ElementsAre(5));
  EXPECT_TRUE(stop.ignore_eos);
  EXPECT_EQ(stop.min_tokens, 3);
  ASSERT_EQ(valid->request.spec->edits.bias.size(), 1u);
  EXPECT_EQ(valid->request.spec->edits.bias[0].token, 7);
  // The reply uses the same stop rules to cut its text.
  EXPECT_EQ(valid->reply.request, valid->request.spec) << "both share one spec";
  EXPECT_EQ(valid->request.spec->max_tokens, 9);
  EXPECT_TRUE(valid->request.spec->empty_final_response);
}

TEST(RequestTermsTest, StopTextsNeedATokenizer) {
  ModelInferRequest message = IdsRequest({1});
  (*message.mutable_parameters())["stop"].set_string_param("x");
  EXPECT_TRUE(Validated(message).ok());
  const absl::Status status =
      Validate(message, kSmallLimits, {.model = FakeModel(FakeConfig())}).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("parameter stop"));
}

TEST(RequestTermsTest, ASeedIsDrawnAndReturnedIfOneIsNeeded) {
  ModelInferRequest message = IdsRequest({1});
  EXPECT_FALSE(Validated(message, {.fresh_seed = 9})->reply.drawn_seed.has_value()) << "greedy";
  (*message.mutable_parameters())["temperature"].set_double_param(1);
  const absl::StatusOr<ValidRequest> valid = Validated(message, {.fresh_seed = 9});
  EXPECT_EQ(valid->request.spec->sampling.seed, 9u);
  EXPECT_EQ(valid->reply.drawn_seed, 9);
}

TEST(RequestTermsTest, TheEarlierDeadlineApplies) {
  using std::chrono::microseconds;
  const MonoTime now = MonoTime(std::chrono::hours(1));
  ModelInferRequest message = IdsRequest({1});
  SetInt(&message, "timeout", 500);
  const auto deadline = [&](MonoTime rpc) {
    return Validated(message, {.received = now, .rpc_deadline = rpc})->request.deadline;
  };
  EXPECT_EQ(deadline(MonoTime::max()), now + microseconds(500));
  EXPECT_EQ(deadline(now + microseconds(400)), now + microseconds(400));
  EXPECT_EQ(deadline(now + microseconds(600)), now + microseconds(500));
  SetInt(&message, "timeout", 0);
  EXPECT_EQ(deadline(now + microseconds(600)), now + microseconds(600));
}

TEST(CallerPriorityTest, AMoreUrgentLevelIsDeniedAndTheDefaultIsWithinTheLimit) {
  const std::shared_ptr<const Model> model = testing::TextModel();
  const auto priority_of = [&](int most_urgent, int asked) -> int {
    inference::ModelInferRequest message = testing::IdsRequest({1});
    if (asked > 0) testing::SetInt(&message, "priority", asked);
    const auto valid = Validate(message, {}, {.max_priority = most_urgent, .model = model});
    if (valid.ok()) return valid->request.spec->priority;
    EXPECT_EQ(ReasonOf(valid.status()), Reason::kPriority);
    EXPECT_THAT(std::string(valid.status().message()), HasSubstr("priority is"));
    return -1;
  };
  EXPECT_EQ(priority_of(1, 1), 1);
  EXPECT_EQ(priority_of(2, 1), -1);
  EXPECT_EQ(priority_of(2, 2), 2);
  EXPECT_EQ(priority_of(3, 2), -1);
  EXPECT_EQ(priority_of(3, 3), 3);
  EXPECT_EQ(priority_of(1, 0), 2);
  EXPECT_EQ(priority_of(3, 0), 3);
}

}  // namespace
}  // namespace sluice
