#include "server/protocol/parameters/parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "base/status_macros.h"
#include "server/common/status.h"
#include "tests/support/fake_backend.h"
#include "tests/support/table.h"

namespace sluice {
namespace {

using inference::InferParameter;

// The model has a vocabulary of 97 tokens and 64 positions.
absl::StatusOr<RequestSpec> Read(const ParameterMap& map,
                                 const ModelConfig& config = FakeConfig()) {
  RequestSpec spec;
  SLUICE_RETURN_IF_ERROR(ReadParameters(map, config, &spec));
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

TEST(ParametersTest, ThePromptWithTheNameOfTheAdapterIsItsDefault) {
  ModelConfig config = FakeConfig();
  config.serving.prompts = {{"one", "1: "}, {"two", "2: "}};
  const auto prompt_of = [&](const std::string& adapter, const ParameterMap& map) {
    RequestSpec spec;
    spec.adapter = adapter;
    EXPECT_EQ(ReadParameters(map, config, &spec), absl::OkStatus());
    return spec.prompt_name;
  };
  ParameterMap named;
  named["prompt_name"] = Text("two");
  EXPECT_EQ(prompt_of("", {}), "");
  EXPECT_EQ(prompt_of("one", {}), "one");
  EXPECT_EQ(prompt_of("three", {}), "");
  EXPECT_EQ(prompt_of("one", named), "two");
}

TEST(ParametersTest, AbsentParametersKeepTheirDefaults) {
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

TEST(ParametersTest, NumbersAreAcceptedInEveryForm) {
  for (const InferParameter& value : {Int(7), Unsigned(7), Real(7), Text("7"), Text("7.0")}) {
    const absl::StatusOr<RequestSpec> read = Read("top_k", value);
    ASSERT_TRUE(read.ok()) << value.ShortDebugString();
    EXPECT_EQ(read->sampling.top_k, 7);
    EXPECT_EQ(Read("temperature", value)->sampling.temperature, 7);
  }
  EXPECT_EQ(Read("temperature", Text("0.25"))->sampling.temperature, 0.25);
  EXPECT_EQ(Read("temperature", Text("1e-2"))->sampling.temperature, 0.01f);
}

struct ParameterRangeRow {
  const char* name;
  const char* parameter;
  InferParameter value;
  bool accepted;
};
class ParameterRangeTable : public TableTest<ParameterRangeRow> {};

TEST_P(ParameterRangeTable, TheRangeIsEnforced) {
  EXPECT_EQ(Read(row().parameter, row().value).ok(), row().accepted);
}

const ParameterRangeRow kParameterRangeRows[] = {
    {.name = "MaxTokensMayBeZero", .parameter = "max_tokens", .value = Int(0), .accepted = true},
    {.name = "MaxTokensMayBeAllPositions",
     .parameter = "max_tokens",
     .value = Int(64),
     .accepted = true},
    {.name = "MaxTokensBeyondThePositionsAreRefused",
     .parameter = "max_tokens",
     .value = Int(65),
     .accepted = false},
    {.name = "MaxTokensBelowZeroAreRefused",
     .parameter = "max_tokens",
     .value = Int(-1),
     .accepted = false},
    {.name = "TemperatureMayBeZero", .parameter = "temperature", .value = Int(0), .accepted = true},
    {.name = "TemperatureMayBeAThousandth",
     .parameter = "temperature",
     .value = Real(0.001),
     .accepted = true},
    {.name = "TemperatureBelowAThousandthIsRefused",
     .parameter = "temperature",
     .value = Real(1e-4),
     .accepted = false},
    {.name = "TemperatureMayBeAThousand",
     .parameter = "temperature",
     .value = Real(1000),
     .accepted = true},
    {.name = "TemperatureAboveAThousandIsRefused",
     .parameter = "temperature",
     .value = Real(1000.5),
     .accepted = false},
    {.name = "TemperatureBelowZeroIsRefused",
     .parameter = "temperature",
     .value = Real(-1),
     .accepted = false},
    {.name = "TopKMayBeZero", .parameter = "top_k", .value = Int(0), .accepted = true},
    {.name = "TopKMayBeTheVocabulary", .parameter = "top_k", .value = Int(97), .accepted = true},
    {.name = "TopKBeyondTheVocabularyIsRefused",
     .parameter = "top_k",
     .value = Int(98),
     .accepted = false},
    {.name = "TopKBelowZeroIsRefused", .parameter = "top_k", .value = Int(-1), .accepted = false},
    {.name = "TopPMayBeOne", .parameter = "top_p", .value = Real(1), .accepted = true},
    {.name = "TopPMayBeAMillionth", .parameter = "top_p", .value = Real(1e-6), .accepted = true},
    {.name = "TopPOfZeroIsRefused", .parameter = "top_p", .value = Real(0), .accepted = false},
    {.name = "TopPThatRoundsToZeroIsRefused",
     .parameter = "top_p",
     .value = Real(1e-60),
     .accepted = false},
    {.name = "TopPAboveOneIsRefused",
     .parameter = "top_p",
     .value = Real(1.0001),
     .accepted = false},
    {.name = "MinPMayBeZero", .parameter = "min_p", .value = Real(0), .accepted = true},
    {.name = "MinPMayBeOne", .parameter = "min_p", .value = Real(1), .accepted = true},
    {.name = "MinPBelowZeroIsRefused",
     .parameter = "min_p",
     .value = Real(-0.1),
     .accepted = false},
    {.name = "MinPAboveOneIsRefused", .parameter = "min_p", .value = Real(1.1), .accepted = false},
    {.name = "TheSeedMayBeZero", .parameter = "seed", .value = Int(0), .accepted = true},
    {.name = "TheSeedMayHaveEveryBit",
     .parameter = "seed",
     .value = Unsigned(UINT64_MAX),
     .accepted = true},
    {.name = "TheSeedBelowZeroIsRefused", .parameter = "seed", .value = Int(-1), .accepted = false},
    {.name = "TopLogprobsMayBeTheVocabulary",
     .parameter = "num_top_logprobs",
     .value = Int(97),
     .accepted = true},
    {.name = "TopLogprobsBeyondTheVocabularyAreRefused",
     .parameter = "num_top_logprobs",
     .value = Int(98),
     .accepted = false},
    {.name = "PriorityMayBeZero", .parameter = "priority", .value = Int(0), .accepted = true},
    {.name = "PriorityMayBeTheLeastUrgent",
     .parameter = "priority",
     .value = Int(3),
     .accepted = true},
    {.name = "PriorityBeyondTheLevelsIsRefused",
     .parameter = "priority",
     .value = Int(4),
     .accepted = false},
    {.name = "TimeoutMayBeADay",
     .parameter = "timeout",
     .value = Int(86'400'000'000),
     .accepted = true},
    {.name = "TimeoutAboveADayIsRefused",
     .parameter = "timeout",
     .value = Int(86'400'000'000 + 1),
     .accepted = false},
    {.name = "TimeoutBelowZeroIsRefused",
     .parameter = "timeout",
     .value = Int(-1),
     .accepted = false},
    {.name = "TopPThatIsNotANumberIsRefused",
     .parameter = "top_p",
     .value = Real(std::nan("")),
     .accepted = false},
    {.name = "TemperatureThatIsInfiniteIsRefused",
     .parameter = "temperature",
     .value = Real(std::numeric_limits<double>::infinity()),
     .accepted = false},
    {.name = "TemperatureNanAsTextIsRefused",
     .parameter = "temperature",
     .value = Text("nan"),
     .accepted = false},
    {.name = "TemperatureInfAsTextIsRefused",
     .parameter = "temperature",
     .value = Text("inf"),
     .accepted = false},
    {.name = "TemperatureAsAWordIsRefused",
     .parameter = "temperature",
     .value = Text("warm"),
     .accepted = false},
    {.name = "TemperatureAsAnEmptyTextIsRefused",
     .parameter = "temperature",
     .value = Text(""),
     .accepted = false},
    {.name = "TemperatureAsABooleanIsRefused",
     .parameter = "temperature",
     .value = Bool(true),
     .accepted = false},
    {.name = "TemperatureWithoutValueIsRefused",
     .parameter = "temperature",
     .value = InferParameter(),
     .accepted = false},
    {.name = "TopKAsAFractionIsRefused",
     .parameter = "top_k",
     .value = Real(1.5),
     .accepted = false},
    {.name = "TopKAsAFractionInATextIsRefused",
     .parameter = "top_k",
     .value = Text("1.5"),
     .accepted = false},
    {.name = "TopKWithALetterAtTheEndIsRefused",
     .parameter = "top_k",
     .value = Text("7x"),
     .accepted = false},
    {.name = "TopKAsABooleanIsRefused",
     .parameter = "top_k",
     .value = Bool(true),
     .accepted = false},
    {.name = "EmptyFinalResponseMayBeABoolean",
     .parameter = "triton_enable_empty_final_response",
     .value = Bool(true),
     .accepted = true},
    {.name = "EmptyFinalResponseOfTwoIsRefused",
     .parameter = "triton_enable_empty_final_response",
     .value = Int(2),
     .accepted = false},
    {.name = "RepetitionPenaltyMayBeAHundredth",
     .parameter = "repetition_penalty",
     .value = Real(0.01),
     .accepted = true},
    {.name = "RepetitionPenaltyBelowAHundredthIsRefused",
     .parameter = "repetition_penalty",
     .value = Real(0.0099),
     .accepted = false},
    {.name = "RepetitionPenaltyMayBeAHundred",
     .parameter = "repetition_penalty",
     .value = Int(100),
     .accepted = true},
    {.name = "RepetitionPenaltyAboveAHundredIsRefused",
     .parameter = "repetition_penalty",
     .value = Real(100.1),
     .accepted = false},
    {.name = "PresencePenaltyMayBeMinusAHundred",
     .parameter = "presence_penalty",
     .value = Int(-100),
     .accepted = true},
    {.name = "PresencePenaltyBelowMinusAHundredIsRefused",
     .parameter = "presence_penalty",
     .value = Real(-100.1),
     .accepted = false},
    {.name = "PresencePenaltyMayBeAText",
     .parameter = "presence_penalty",
     .value = Text("100"),
     .accepted = true},
    {.name = "FrequencyPenaltyMayBeMinusAHundred",
     .parameter = "frequency_penalty",
     .value = Int(-100),
     .accepted = true},
    {.name = "FrequencyPenaltyAboveAHundredIsRefused",
     .parameter = "frequency_penalty",
     .value = Int(101),
     .accepted = false},
    {.name = "FrequencyPenaltyThatIsNotANumberIsRefused",
     .parameter = "frequency_penalty",
     .value = Real(std::nan("")),
     .accepted = false},
    {.name = "MinTokensMayBeMaxTokens",
     .parameter = "min_tokens",
     .value = Int(1),
     .accepted = true},
    {.name = "MinTokensAboveMaxTokensAreRefused",
     .parameter = "min_tokens",
     .value = Int(2),
     .accepted = false},  // above max_tokens, 1
    {.name = "MinTokensBelowZeroAreRefused",
     .parameter = "min_tokens",
     .value = Int(-1),
     .accepted = false},
    {.name = "IgnoreEosMayBeABoolean",
     .parameter = "ignore_eos",
     .value = Bool(false),
     .accepted = true},
    {.name = "IgnoreEosMayBeOneAsText",
     .parameter = "ignore_eos",
     .value = Text("1"),
     .accepted = true},
    {.name = "IgnoreEosOfTwoIsRefused",
     .parameter = "ignore_eos",
     .value = Int(2),
     .accepted = false},
    {.name = "IgnoreEosAsAWordIsRefused",
     .parameter = "ignore_eos",
     .value = Text("yes"),
     .accepted = false},
};
SLUICE_TABLE(ParameterRangeTable, kParameterRangeRows);

TEST(ParametersTest, EveryParameterRefusesExtremeIntegers) {
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

TEST(ParametersTest, ErrorsNameTheParameterTheValueAndTheRange) {
  const absl::Status status = Read("top_k", Int(98)).status();
  EXPECT_EQ(std::string(status.message()), "parameter top_k is 98; expected an integer in [0, 97]");
  EXPECT_EQ(ReasonOf(status), Reason::kParameter);
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

// Returns a bias that bans the ids in [0, end), as JSON.
std::string BanBelow(int end) {
  std::string bans = "{\"0\": null";
  for (int id = 1; id < end; ++id) bans += ", \"" + std::to_string(id) + "\": \"-inf\"";
  return bans + "}";
}

struct RemainingTokensRow {
  const char* name;
  std::map<std::string, std::string> texts;
  bool accepted;
};
class RemainingTokensTable : public TableTest<RemainingTokensRow> {};

TEST_P(RemainingTokensTable, IsAcceptedOnlyIfATokenCanBeDrawn) {
  ModelConfig config = FakeConfig();
  config.eos_token_ids = {96};
  ParameterMap map;
  for (const auto& [name, text] : row().texts) map[name] = Text(text);
  const absl::StatusOr<RequestSpec> read = Read(map, config);
  EXPECT_EQ(read.ok(), row().accepted) << read.status();
}

const RemainingTokensRow kRemainingTokensRows[] = {
    {.name = "ABanOfAllTokensIsRefused",
     .texts = {{"logit_bias", BanBelow(97)}},
     .accepted = false},
    {.name = "ABanOfAllButTwoIsAccepted",
     .texts = {{"logit_bias", BanBelow(95)}},
     .accepted = true},
    {.name = "AllowingOnlyBannedTokensIsRefused",
     .texts = {{"logit_bias", BanBelow(95)}, {"allowed_token_ids", "3,4"}},
     .accepted = false},
    {.name = "AllowingOneTokenThatIsNotBannedIsAccepted",
     .texts = {{"logit_bias", BanBelow(95)}, {"allowed_token_ids", "3,96"}},
     .accepted = true},
    {.name = "StoppingAtTheRemainingTokensIsAccepted",
     .texts = {{"logit_bias", BanBelow(95)}, {"stop_token_ids", "[95,96]"}},
     .accepted = true},
    {.name = "StoppingAtTheRemainingTokensBeforeMinTokensIsRefused",
     .texts = {{"logit_bias", BanBelow(95)}, {"stop_token_ids", "[95,96]"}, {"min_tokens", "1"}},
     .accepted = false},
    {.name = "AllowingOnlyTheStopTokenBeforeMinTokensIsRefused",
     .texts = {{"allowed_token_ids", "5"}, {"stop_token_ids", "5"}, {"min_tokens", "1"}},
     .accepted = false},
    {.name = "AllowingOnlyTheStopTokenIsAccepted",
     .texts = {{"allowed_token_ids", "5"}, {"stop_token_ids", "5"}},
     .accepted = true},
    {.name = "AllowingOnlyTheEosBeforeMinTokensIsRefused",
     .texts = {{"allowed_token_ids", "96"}, {"min_tokens", "1"}},
     .accepted = false},
    {.name = "AllowingOnlyAnIgnoredEosIsAccepted",
     .texts = {{"allowed_token_ids", "96"}, {"min_tokens", "1"}, {"ignore_eos", "1"}},
     .accepted = true},
    {.name = "AllowingNoTokenIsRefused", .texts = {{"allowed_token_ids", "[]"}}, .accepted = false},
};
SLUICE_TABLE(RemainingTokensTable, kRemainingTokensRows);

TEST(ParametersTest, UnknownNamesAreRefused) {
  for (const char* name : {"max_tokenz", "triton_priority", "sequence_id", ""}) {
    const absl::Status status = Read(name, Int(1)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(Printable(name)));
  }
}

}  // namespace
}  // namespace sluice
