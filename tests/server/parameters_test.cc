#include "server/parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "server/status.h"
#include "tests/support/fake_backend.h"

namespace sluice {
namespace {

using inference::InferParameter;

// vocab 97, 64 positions
absl::StatusOr<Parameters> Read(const std::string& name, const InferParameter& value) {
  ParameterMap map;
  map[name] = value;
  return ReadParameters(map, FakeConfig());
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
  const absl::StatusOr<Parameters> read = ReadParameters({}, FakeConfig());
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->max_tokens, 1);
  EXPECT_EQ(read->temperature, 0);
  EXPECT_EQ(read->top_k, 0);
  EXPECT_EQ(read->top_p, 1);
  EXPECT_EQ(read->min_p, 0);
  EXPECT_FALSE(read->seed.has_value());
  EXPECT_EQ(read->num_top_logprobs, 0);
  EXPECT_EQ(read->priority, 0);
  EXPECT_EQ(read->timeout_us, 0);
}

TEST(ParametersTest, ANumberMayComeInEveryForm) {
  for (const InferParameter& value : {Int(7), Unsigned(7), Real(7), Text("7"), Text("7.0")}) {
    const absl::StatusOr<Parameters> read = Read("top_k", value);
    ASSERT_TRUE(read.ok()) << value.ShortDebugString();
    EXPECT_EQ(read->top_k, 7);
    EXPECT_EQ(Read("temperature", value)->temperature, 7);
  }
  EXPECT_EQ(Read("temperature", Text("0.25"))->temperature, 0.25);
  EXPECT_EQ(Read("temperature", Text("1e-2"))->temperature, 0.01);
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
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(test.name + " " + test.value.ShortDebugString());
    EXPECT_EQ(Read(test.name, test.value).ok(), test.good);
  }
}

TEST(ParametersTest, ExtremeIntegersAreRefusedEverywhere) {
  for (const char* name : {"max_tokens", "top_k", "num_top_logprobs", "priority", "timeout"}) {
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
  EXPECT_EQ(Read("seed", Text("18446744073709551615"))->seed, UINT64_MAX);
  EXPECT_EQ(Read("seed", Unsigned(UINT64_MAX - 1))->seed, UINT64_MAX - 1);
}

TEST(ParametersTest, ErrorsNameParameterValueAndRange) {
  const absl::Status status = Read("top_k", Int(98)).status();
  EXPECT_EQ(std::string(status.message()), "parameter top_k is 98; expected an integer in [0, 97]");
  EXPECT_EQ(ReasonOf(status), "parameter");
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
