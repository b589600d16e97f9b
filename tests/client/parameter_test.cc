#include "client/parameter.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace sluice::client {
namespace {

using inference::ModelInferRequest;
using nlohmann::json;

const ParameterInfo& Named(absl::string_view name) {
  for (const ParameterInfo* info : Parameters()) {
    if (info->client_name == std::string_view(name.data(), name.size())) return *info;
  }
  ADD_FAILURE() << "no parameter " << name;
  return *Parameters()[0];
}

// Returns the text that is sent for a string parameter, or the error.
std::string Sent(absl::string_view name, const std::vector<std::string>& values) {
  ModelInferRequest request;
  const absl::Status status = SetParameter(Named(name), values, &request);
  if (!status.ok()) return std::string(status.message());
  return request.parameters().at(std::string(name)).string_param();
}

std::string SentJson(absl::string_view name, const json& value) {
  ModelInferRequest request;
  const absl::Status status = SetParameterFromJson(Named(name), value, &request);
  if (!status.ok()) return std::string(status.message());
  return request.parameters().at(std::string(name)).string_param();
}

TEST(SetParameter, SendsTokenIdsAsAJsonList) {
  EXPECT_EQ(Sent("allowed_token_ids", {"7, 5,-1"}), "[7,5,-1]");
  EXPECT_EQ(Sent("stop_token_ids", {"0"}), "[0]");
  for (const char* bad : {"", "1,", "a", "1 2", "2147483648", "[1]"}) {
    EXPECT_EQ(
        Sent("stop_token_ids", {bad}),
        std::string("stop_token_ids: expected comma-separated token ids, got \"") + bad + "\"");
  }
}

TEST(SetParameter, SendsBiasesAsAJsonObject) {
  EXPECT_EQ(Sent("logit_bias", {"5=-2.5, 7=ban,9=1e1"}), R"({"5":-2.5,"7":null,"9":10.0})");
  EXPECT_EQ(Sent("logit_bias", {"5=1,5=2"}), R"({"5":1.0,"5":2.0})");
  for (const char* bad : {"", "5", "5=", "=1", "5=inf", "5=nan", "5=x", "5=1,", "x=1", "5=1=2"}) {
    EXPECT_EQ(Sent("logit_bias", {bad}),
              std::string("logit_bias: expected comma-separated ID=BIAS, each bias a finite number "
                          "or \"ban\", got \"") +
                  bad + "\"");
  }
}

TEST(SetParameter, SendsTextsAsAJsonListForAnyFirstCharacter) {
  EXPECT_EQ(Sent("stop", {"\n\n"}), R"(["\n\n"])");
  EXPECT_EQ(Sent("stop", {"[1]", "\"", ""}), R"(["[1]","\"",""])");
  EXPECT_EQ(Sent("stop", {"a", "\xff"}), "stop: expected texts in UTF-8, got \"a\"");
}

TEST(SetParameter, ASwitchIsABool) {
  ModelInferRequest request;
  ASSERT_TRUE(SetParameter(Named("ignore_eos"), {"true"}, &request).ok());
  EXPECT_TRUE(request.parameters().at("ignore_eos").bool_param());
  EXPECT_FALSE(SetParameter(Named("ignore_eos"), {"yes"}, &request).ok());
}

TEST(SetParameterFromJson, TakesListsAndObjects) {
  EXPECT_EQ(SentJson("stop", "[end"), R"(["[end"])");
  EXPECT_EQ(SentJson("stop", {"a", "b"}), R"(["a","b"])");
  EXPECT_EQ(SentJson("allowed_token_ids", {1, 2}), "[1,2]");
  EXPECT_EQ(SentJson("logit_bias", {{"5", -2}, {"7", nullptr}}), R"({"5":-2,"7":null})");
}

TEST(SetParameterFromJson, ErrorsNameTheExpectedForm) {
  const json deep = json::array({json::array({1})});
  EXPECT_EQ(SentJson("stop", 5), "stop: expected a string or a list of strings");
  EXPECT_EQ(SentJson("stop", {"a", 5}), "stop: expected a string or a list of strings");
  EXPECT_EQ(SentJson("stop_token_ids", "1,2"), "stop_token_ids: expected a list of integers");
  EXPECT_EQ(SentJson("stop_token_ids", {1.5}), "stop_token_ids: expected a list of integers");
  EXPECT_EQ(SentJson("stop_token_ids", deep), "stop_token_ids: expected a list of integers");
  EXPECT_EQ(SentJson("logit_bias", deep),
            "logit_bias: expected an object of token ids and numbers, or null for a ban");
  EXPECT_EQ(SentJson("logit_bias", {{"5", "x"}}),
            "logit_bias: expected an object of token ids and numbers, or null for a ban");
  EXPECT_EQ(SentJson("ignore_eos", 1), "ignore_eos: expected true or false");
  EXPECT_EQ(SentJson("max_tokens", true), "max_tokens: expected an integer");
}

}  // namespace
}  // namespace sluice::client
