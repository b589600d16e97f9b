#include "server/parameters.h"

#include <cmath>

#include "absl/numeric/int128.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/request.h"
#include "server/status.h"

namespace sluice {
namespace {

constexpr double kMinTemperature = 1e-3;  // below, dividing logits by it would overflow floats
constexpr double kMaxTemperature = 1e3;
constexpr int64_t kMaxTimeoutUs = int64_t{24} * 60 * 60 * 1'000'000;
constexpr double kTwoTo64 = 18446744073709551616.0;

struct Number {
  double real;
  std::optional<absl::int128> integer;  // when it is one
};

Number FromInteger(absl::int128 value) { return {static_cast<double>(value), value}; }

std::optional<Number> FromReal(double value) {
  if (!std::isfinite(value)) return std::nullopt;
  if (std::trunc(value) != value || std::fabs(value) >= kTwoTo64) return Number{value, {}};
  return Number{value, absl::int128(value)};
}

std::optional<Number> FromText(const std::string& text) {
  int64_t signed_value;
  uint64_t unsigned_value;
  double real;
  if (absl::SimpleAtoi(text, &signed_value)) return FromInteger(signed_value);
  if (absl::SimpleAtoi(text, &unsigned_value)) return FromInteger(unsigned_value);
  if (absl::SimpleAtod(text, &real)) return FromReal(real);
  return std::nullopt;
}

std::optional<Number> ReadNumber(const inference::InferParameter& value) {
  switch (value.parameter_choice_case()) {
    case inference::InferParameter::kInt64Param:
      return FromInteger(value.int64_param());
    case inference::InferParameter::kUint64Param:
      return FromInteger(value.uint64_param());
    case inference::InferParameter::kDoubleParam:
      return FromReal(value.double_param());
    case inference::InferParameter::kStringParam:
      return FromText(value.string_param());
    case inference::InferParameter::kBoolParam:
    case inference::InferParameter::PARAMETER_CHOICE_NOT_SET:
      return std::nullopt;
  }
  return std::nullopt;
}

std::string Describe(const inference::InferParameter& value) {
  switch (value.parameter_choice_case()) {
    case inference::InferParameter::kInt64Param:
      return absl::StrCat(value.int64_param());
    case inference::InferParameter::kUint64Param:
      return absl::StrCat(value.uint64_param());
    case inference::InferParameter::kDoubleParam:
      return absl::StrCat(value.double_param());
    case inference::InferParameter::kStringParam:
      return Printable(value.string_param());
    case inference::InferParameter::kBoolParam:
      return value.bool_param() ? "true" : "false";
    case inference::InferParameter::PARAMETER_CHOICE_NOT_SET:
      break;
  }
  return "without value";
}

absl::Status Expected(absl::string_view name, const inference::InferParameter& value,
                      absl::string_view expected) {
  return WithReason(absl::InvalidArgumentError(absl::StrCat(
                        "parameter ", name, " is ", Describe(value), "; expected ", expected)),
                    "parameter");
}

template <typename T>
absl::Status ReadInteger(absl::string_view name, const inference::InferParameter& value, T min,
                         T max, T* out) {
  const std::optional<Number> number = ReadNumber(value);
  if (!number || !number->integer || *number->integer < min || *number->integer > max) {
    return Expected(name, value, absl::StrCat("an integer in [", min, ", ", max, "]"));
  }
  *out = static_cast<T>(*number->integer);
  return absl::OkStatus();
}

absl::Status ReadTemperature(const inference::InferParameter& value, double* out) {
  const std::optional<Number> number = ReadNumber(value);
  const bool good =
      number &&
      (number->real == 0 || (number->real >= kMinTemperature && number->real <= kMaxTemperature));
  if (!good) return Expected("temperature", value, "0 or a number in [0.001, 1000]");
  *out = number->real;
  return absl::OkStatus();
}

// The engine computes in float, so a value that rounds to 0 there is 0 here.
absl::Status ReadShare(absl::string_view name, const inference::InferParameter& value,
                       bool zero_allowed, double* out) {
  const std::optional<Number> number = ReadNumber(value);
  const bool good = number && number->real >= 0 && number->real <= 1 &&
                    (zero_allowed || static_cast<float>(number->real) > 0);
  if (!good) {
    return Expected(name, value, zero_allowed ? "a number in [0, 1]" : "a number in (0, 1]");
  }
  *out = number->real;
  return absl::OkStatus();
}

absl::Status ReadSeed(const inference::InferParameter& value, std::optional<uint64_t>* out) {
  uint64_t seed = 0;
  absl::Status status = ReadInteger<uint64_t>("seed", value, 0, UINT64_MAX, &seed);
  if (status.ok()) *out = seed;
  return status;
}

absl::Status ReadOne(const std::string& name, const inference::InferParameter& value,
                     const ModelConfig& config, Parameters* out) {
  const auto integer = [&](int64_t max, int64_t* field) {
    return ReadInteger<int64_t>(name, value, 0, max, field);
  };
  if (name == "max_tokens") return integer(config.max_positions, &out->max_tokens);
  if (name == "temperature") return ReadTemperature(value, &out->temperature);
  if (name == "top_k") return integer(config.vocab_size, &out->top_k);
  if (name == "top_p") return ReadShare(name, value, /*zero_allowed=*/false, &out->top_p);
  if (name == "min_p") return ReadShare(name, value, /*zero_allowed=*/true, &out->min_p);
  if (name == "seed") return ReadSeed(value, &out->seed);
  if (name == "num_top_logprobs") return integer(config.vocab_size, &out->num_top_logprobs);
  if (name == "priority") return integer(kPriorityLevels, &out->priority);
  if (name == "timeout") return integer(kMaxTimeoutUs, &out->timeout_us);
  if (name == "triton_enable_empty_final_response") return absl::OkStatus();
  return WithReason(absl::InvalidArgumentError(absl::StrCat("unknown parameter ", Printable(name))),
                    "parameter");
}

}  // namespace

absl::StatusOr<Parameters> ReadParameters(const ParameterMap& map, const ModelConfig& config) {
  Parameters parameters;
  for (const auto& [name, value] : map) {
    if (absl::Status status = ReadOne(name, value, config, &parameters); !status.ok()) {
      return status;
    }
  }
  return parameters;
}

}  // namespace sluice
