#include "server/protocol/parameters/parameter_value.h"

#include <cmath>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/common/status.h"

namespace sluice {
namespace {

constexpr double kTwoTo64 = 18446744073709551616.0;

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

// Returns the value if it is an integer in [min, max].
std::optional<absl::int128> IntegerIn(const inference::InferParameter& value, absl::int128 min,
                                      absl::int128 max) {
  const std::optional<Number> number = ReadNumber(value);
  if (!number || !number->integer || *number->integer < min || *number->integer > max) {
    return std::nullopt;
  }
  return number->integer;
}

}  // namespace

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

absl::Status ReadInteger(absl::string_view name, const inference::InferParameter& value,
                         int64_t min, int64_t max, int64_t* out) {
  const std::optional<absl::int128> integer = IntegerIn(value, min, max);
  if (!integer) {
    return Expected(name, value, absl::StrCat("an integer in [", min, ", ", max, "]"));
  }
  *out = static_cast<int64_t>(*integer);
  return absl::OkStatus();
}

absl::Status ReadInteger(absl::string_view name, const inference::InferParameter& value,
                         uint64_t* out) {
  const std::optional<absl::int128> integer = IntegerIn(value, 0, UINT64_MAX);
  if (!integer) {
    return Expected(name, value, absl::StrCat("an integer in [0, ", UINT64_MAX, "]"));
  }
  *out = static_cast<uint64_t>(*integer);
  return absl::OkStatus();
}

absl::Status ReadReal(absl::string_view name, const inference::InferParameter& value,
                      const RealRange& range, float* out) {
  const std::optional<Number> number = ReadNumber(value);
  const bool zero = number && number->real == 0 && range.zero_too;
  const bool good =
      number && number->real >= range.min && number->real <= range.max &&
      (!range.above_min || static_cast<float>(number->real) > static_cast<float>(range.min));
  if (!zero && !good) {
    return Expected(name, value,
                    absl::StrCat(range.zero_too ? "0 or " : "", "a number in ",
                                 range.above_min ? "(" : "[", range.min, ", ", range.max, "]"));
  }
  *out = static_cast<float>(number->real);
  return absl::OkStatus();
}

absl::Status ReadFlag(absl::string_view name, const inference::InferParameter& value, bool* out) {
  if (value.parameter_choice_case() == inference::InferParameter::kBoolParam) {
    *out = value.bool_param();
    return absl::OkStatus();
  }
  const std::optional<absl::int128> integer = IntegerIn(value, 0, 1);
  if (!integer) return Expected(name, value, "a bool, 0 or 1");
  *out = *integer == 1;
  return absl::OkStatus();
}

absl::Status Expected(absl::string_view name, const inference::InferParameter& value,
                      absl::string_view expected) {
  return ReasonError(Reason::kParameter, absl::StrCat("parameter ", name, " is ", Describe(value),
                                                      "; expected ", expected));
}

absl::Status ParameterError(absl::string_view name, absl::string_view problem) {
  const absl::string_view separator = absl::StartsWith(problem, "is ") ? " " : ": ";
  return ReasonError(Reason::kParameter, absl::StrCat("parameter ", name, separator, problem));
}

}  // namespace sluice
