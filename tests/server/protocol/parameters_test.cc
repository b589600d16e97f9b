#include "server/protocol/parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "server/common/status.h"
#include "tests/support/fake_backend.h"

namespace sluice {
namespace {

using inference::InferParameter;

// Of the model: vocab 97, 64 positions.
absl::StatusOr<RequestSpec> Read(const ParameterMap& map,
                                 const ModelConfig& config = FakeConfig()) {
  RequestSpec spec;
  if (absl::Status status = ReadParameters(map, config, &spec); !status.ok()) return status;
  return spec;
}

absl::StatusOr<RequestSpec> Read(const std::string& name, const InferParameter& value) {
  ParameterMap map;
  map[name] = value;
  return Read(map);
}

InferParameter Int(int64_t value) {
  InferParameter parameter;
  parameter.set_int64_param(value);
  return parameter;
}
InferParameter Unsigned(uint64_t value) {
  InferParameter parameter;
  parameter.set_uint64_param(value);
  return parameter;
}
InferParameter Real(double value) {
  InferParameter parameter;
  parameter.set_double_param(value);
  return parameter;
}
InferParameter Text(const std::string& value) {
  InferParameter parameter;
  parameter.set_string_param(value);
  return parameter;
}
InferParameter Bool(bool value) {
  InferParameter parameter;
  parameter.set_bool_param(value);
  return parameter;
}

TEST(ParametersTest, Defaults) {
  const absl::StatusOr<RequestSpec> read = Read(ParameterMap());
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->max_tokens, 1);
  EXPECT_EQ(read->sampling.temperature, 0);
  EXPECT_EQ(read->sampling.top_k, 0);
  EXPECT_EQ(read->sampling.top_p, 1);
  EXPECT_EQ(read->sampling.min_p, 0);
  EXPECT_EQ(read->sampling.seed, 0u);
  EXPECT_EQ(read->num_top, 0);
  EXPECT_EQ(read->priority, kDefaultPriority);
  EXPECT_EQ(read->timeout_us, 0);
  EXPECT_EQ(read->edits.repetition_penalty, 1);
  EXPECT_EQ(read->edits.presence_penalty, 0);
  EXPECT_EQ(read->edits.frequency_penalty, 0);
  EXPECT_TRUE(read->edits.bias.empty());
  EXPECT_TRUE(read->edits.allowed.empty());
  EXPECT_TRUE(read->stop.ids.empty());
  EXPECT_TRUE(read->stop.texts.empty());
  EXPECT_FALSE(read->stop.ignore_eos);
  EXPECT_EQ(read->stop.min_tokens, 0);
  EXPECT_FALSE(read->empty_final_response);
}

TEST(ParametersTest, ANumberMayComeInEveryForm) {
  for (const InferParameter& value : {Int(7), Unsigned(7), Real(7), Text("7"), Text("7.0")}) {
    const absl::StatusOr<RequestSpec> read = Read("top_k", value);
    ASSERT_TRUE(read.ok()) << value.ShortDebugString();
    EXPECT_EQ(read->sampling.top_k, 7);
    EXPECT_EQ(Read("temperature", value)->sampling.temperature, 7);
  }
  EXPECT_EQ(Read("temperature", Text("0.25"))->sampling.temperature, 0.25);
  EXPECT_EQ(Read("temperature", Text("1e-2"))->sampling.temperature, 0.01f);
}

TEST(ParametersTest, BothEndsOfEveryRange) {
  struct Case {
    std::string name;
    InferParameter value;
    bool good;
  };
  const double inf = std::numeric_limits<double>::infinity();
  const int64_t day_us = 86'400'000'000;
  const Case cases[] = {
      {"max_tokens", Int(0), true},
      {"max_tokens", Int(64), true},
      {"max_tokens", Int(65), false},
      {"max_tokens", Int(-1), false},
      {"temperature", Int(0), true},
      {"temperature", Real(0.001), true},
      {"temperature", Real(1e-4), false},
      {"temperature", Real(1000), true},
      {"temperature", Real(1000.5), false},
      {"temperature", Real(-1), false},
      {"top_k", Int(0), true},
      {"top_k", Int(97), true},
      {"top_k", Int(98), false},
      {"top_k", Int(-1), false},
      {"top_p", Real(1), true},
      {"top_p", Real(1e-6), true},
      {"top_p", Real(0), false},
      {"top_p", Real(1e-60), false},
      {"top_p", Real(1.0001), false},
      {"min_p", Real(0), true},
      {"min_p", Real(1), true},
      {"min_p", Real(-0.1), false},
      {"min_p", Real(1.1), false},
      {"seed", Int(0), true},
      {"seed", Unsigned(UINT64_MAX), true},
      {"seed", Int(-1), false},
      {"num_top_logprobs", Int(97), true},
      {"num_top_logprobs", Int(98), false},
      {"priority", Int(0), true},
      {"priority", Int(3), true},
      {"priority", Int(4), false},
      {"timeout", Int(day_us), true},
      {"timeout", Int(day_us + 1), false},
      {"timeout", Int(-1), false},
      {"top_p", Real(std::nan("")), false},
      {"temperature", Real(inf), false},
      {"temperature", Text("nan"), false},
      {"temperature", Text("inf"), false},
      {"temperature", Text("warm"), false},
      {"temperature", Text(""), false},
      {"temperature", Bool(true), false},
      {"temperature", InferParameter(), false},
      {"top_k", Real(1.5), false},
      {"top_k", Text("1.5"), false},
      {"top_k", Text("7x"), false},
      {"top_k", Bool(true), false},
      {"triton_enable_empty_final_response", Bool(true), true},
      {"triton_enable_empty_final_response", Int(2), false},
      {"repetition_penalty", Real(0.01), true},
      {"repetition_penalty", Real(0.0099), false},
      {"repetition_penalty", Int(100), true},
      {"repetition_penalty", Real(100.1), false},
      {"presence_penalty", Int(-100), true},
      {"presence_penalty", Real(-100.1), false},
      {"presence_penalty", Text("100"), true},
      {"frequency_penalty", Int(-100), true},
      {"frequency_penalty", Int(101), false},
      {"frequency_penalty", Real(std::nan("")), false},
      {"min_tokens", Int(1), true},
      {"min_tokens", Int(2), false},  // above max_tokens, 1
      {"min_tokens", Int(-1), false},
      {"ignore_eos", Bool(false), true},
      {"ignore_eos", Text("1"), true},
      {"ignore_eos", Int(2), false},
      {"ignore_eos", Text("yes"), false},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(test.name + " " + test.value.ShortDebugString());
    EXPECT_EQ(Read(test.name, test.value).ok(), test.good);
  }
}

TEST(ParametersTest, ExtremeIntegersAreRefusedEverywhere) {
  for (const char* name : {"max_tokens", "top_k", "num_top_logprobs", "priority", "timeout",
                           "min_tokens", "ignore_eos"}) {
    for (const InferParameter& value :
         {Int(INT64_MIN), Int(INT64_MAX), Unsigned(UINT64_MAX), Unsigned(uint64_t{1} << 63),
          Real(1e300), Real(-1e300), Real(18446744073709551616.0), Real(9223372036854775808.0),
          Text("99999999999999999999999"), Text("-9223372036854775808")}) {
      SCOPED_TRACE(std::string(name) + " " + value.ShortDebugString());
      EXPECT_EQ(Read(name, value).status().code(), absl::StatusCode::kInvalidArgument);
    }
  }
}

TEST(ParametersTest, LargeSeedsKeepEveryBit) {
  EXPECT_EQ(Read("seed", Text("18446744073709551615"))->sampling.seed, UINT64_MAX);
  EXPECT_EQ(Read("seed", Unsigned(UINT64_MAX - 1))->sampling.seed, UINT64_MAX - 1);
}

TEST(ParametersTest, ErrorsNameParameterValueAndRange) {
  const absl::Status status = Read("top_k", Int(98)).status();
  EXPECT_EQ(std::string(status.message()), "parameter top_k is 98; expected an integer in [0, 97]");
  EXPECT_EQ(ReasonOf(status), "parameter");
}

TEST(ParametersTest, EditsAndStopsAreRead) {
  ParameterMap map;
  map["max_tokens"] = Int(9);
  map["min_tokens"] = Text("9");
  map["repetition_penalty"] = Text("1.5");
  map["presence_penalty"] = Real(-0.5);
  map["frequency_penalty"] = Int(2);
  map["ignore_eos"] = Bool(true);
  map["stop_token_ids"] = Text("[7, 3]");
  map["allowed_token_ids"] = Text("9,3,7,11");
  map["triton_enable_empty_final_response"] = Bool(true);
  const absl::StatusOr<RequestSpec> read = Read(map);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->stop.min_tokens, 9);
  EXPECT_EQ(read->edits.repetition_penalty, 1.5f);
  EXPECT_EQ(read->edits.presence_penalty, -0.5f);
  EXPECT_EQ(read->edits.frequency_penalty, 2);
  EXPECT_TRUE(read->stop.ignore_eos);
  EXPECT_EQ(read->stop.ids, (std::vector<int32_t>{3, 7}));
  EXPECT_EQ(read->edits.allowed, (std::vector<int32_t>{3, 7, 9, 11}));
  EXPECT_TRUE(read->empty_final_response);
}

// Each leaves nothing that could be drawn, or nearly.
TEST(ParametersTest, SomeTokenMustRemain) {
  struct Case {
    std::map<std::string, std::string> texts;
    bool good;
  };
  std::string all = "{\"0\": null";
  for (int id = 1; id < 97; ++id) all += ", \"" + std::to_string(id) + "\": \"-inf\"";
  const std::string all_but_two = all.substr(0, all.rfind(", \"95\""));
  const Case cases[] = {
      {{{"logit_bias", all + "}"}}, false},
      {{{"logit_bias", all_but_two + "}"}}, true},
      {{{"logit_bias", all_but_two + "}"}, {"allowed_token_ids", "3,4"}}, false},
      {{{"logit_bias", all_but_two + "}"}, {"allowed_token_ids", "3,96"}}, true},
      {{{"logit_bias", all_but_two + "}"}, {"stop_token_ids", "[95,96]"}}, true},
      {{{"logit_bias", all_but_two + "}"}, {"stop_token_ids", "[95,96]"}, {"min_tokens", "1"}},
       false},
      {{{"allowed_token_ids", "5"}, {"stop_token_ids", "5"}, {"min_tokens", "1"}}, false},
      {{{"allowed_token_ids", "5"}, {"stop_token_ids", "5"}}, true},
      {{{"allowed_token_ids", "96"}, {"min_tokens", "1"}}, false},  // 96 is the eos below
      {{{"allowed_token_ids", "96"}, {"min_tokens", "1"}, {"ignore_eos", "1"}}, true},
      {{{"allowed_token_ids", "[]"}}, false},
  };
  ModelConfig config = FakeConfig();
  config.eos_token_ids = {96};
  for (const Case& test : cases) {
    ParameterMap map;
    std::string trace;
    for (const auto& [name, text] : test.texts) {
      map[name] = Text(text);
      trace += name + "=" + text + " ";
    }
    SCOPED_TRACE(trace);
    const absl::StatusOr<RequestSpec> read = Read(map, config);
    EXPECT_EQ(read.ok(), test.good) << read.status();
  }
}

TEST(ParametersTest, UnknownNamesAreRefused) {
  for (const char* name : {"max_tokenz", "triton_priority", "sequence_id", ""}) {
    const absl::Status status = Read(name, Int(1)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(Printable(name)));
  }
}

}  // namespace
}  // namespace sluice
