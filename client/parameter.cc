#include "client/parameter.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/option_value.h"
#include "base/utf8.h"

namespace sluice::client {
namespace {

using inference::InferParameter;
using inference::ModelInferRequest;
using nlohmann::json;

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

const char* ExpectedOf(ParameterKind kind) {
  switch (kind) {
    case ParameterKind::kInteger:
      return "an integer";
    case ParameterKind::kUnsigned:
      return "an integer from 0 to 2^64 - 1";
    case ParameterKind::kReal:
      return "a finite number";
    case ParameterKind::kSwitch:
      return "true or false";
    case ParameterKind::kWord:
    case ParameterKind::kName:
      return "a word in UTF-8";
    case ParameterKind::kIds:
      return "comma-separated token ids";
    case ParameterKind::kBiases:
      return "comma-separated ID=BIAS, each bias a finite number or \"ban\"";
    case ParameterKind::kTexts:
      return "texts in UTF-8";
    case ParameterKind::kSpans:
      return "JSON, a list of [begin, end] for each row";
    case ParameterKind::kDuration:
      break;
  }
  return "a duration with its unit, such as 500ms";
}

const char* ExpectedJsonOf(ParameterKind kind) {
  switch (kind) {
    case ParameterKind::kIds:
      return "a list of integers";
    case ParameterKind::kBiases:
      return "an object of token ids and numbers, or null for a ban";
    case ParameterKind::kTexts:
      return "a string or a list of strings";
    default:
      return ExpectedOf(kind);
  }
}

// Returns the form of the flag's value, after a space; empty if no explanation is needed.
std::string FormOf(const ParameterInfo& info) {
  switch (info.kind()) {
    case ParameterKind::kIds:
      return " Comma-separated: 1,2,3.";
    case ParameterKind::kBiases:
      return " As a flag: ID=BIAS,... with \"ban\" for a ban.";
    case ParameterKind::kTexts:
      return " May be repeated.";
    case ParameterKind::kDuration:
      return " E.g. 500ms.";
    case ParameterKind::kSpans:
      return " As JSON: [[[0,12],[12,30]]].";
    case ParameterKind::kWord: {
      std::string form = " One of ";
      for (const std::string_view word : info.words) {
        absl::StrAppend(&form, word == info.words.front() ? "" : ", ", View(word));
      }
      return form + ".";
    }
    default:
      return "";
  }
}

absl::Status NotExpected(const ParameterInfo& info, absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat(View(info.client_name), ": expected ", expected));
}

bool ParseTexts(absl::Span<const std::string> texts, InferParameter* parameter) {
  if (!std::all_of(texts.begin(), texts.end(), IsUtf8)) return false;
  parameter->set_string_param(json(std::vector<std::string>(texts.begin(), texts.end())).dump());
  return true;
}

std::optional<int32_t> ParseId(absl::string_view text) {
  constexpr Integer kId{std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()};
  int32_t id;
  if (!kId.Parse(absl::StripAsciiWhitespace(text), &id)) return std::nullopt;
  return id;
}

bool ParseFiniteNumber(absl::string_view text, double* number) {
  return absl::SimpleAtod(text, number) && std::isfinite(*number);
}

bool ParseIdList(absl::string_view text, InferParameter* parameter) {
  json ids = json::array();
  for (const absl::string_view piece : absl::StrSplit(text, ',')) {
    const std::optional<int32_t> id = ParseId(piece);
    if (!id.has_value()) return false;
    ids.push_back(*id);
  }
  parameter->set_string_param(ids.dump());
  return true;
}

// An id that is given twice is sent twice, so that the server can refuse it.
bool ParseBiases(absl::string_view text, InferParameter* parameter) {
  std::string object;
  for (const absl::string_view piece : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(piece, absl::MaxSplits('=', 1));
    const std::optional<int32_t> id = ParseId(pair.first);
    const absl::string_view bias = absl::StripAsciiWhitespace(pair.second);
    double number = 0;
    const bool ban = bias == "ban";
    if (!id.has_value() || !(ban || ParseFiniteNumber(bias, &number))) return false;
    absl::StrAppend(&object, object.empty() ? "{" : ",", "\"", *id,
                    "\":", ban ? "null" : json(number).dump());
  }
  parameter->set_string_param(absl::StrCat(object, "}"));
  return true;
}

// Any duration; the server checks the range.
constexpr Integer kAnyDuration{std::numeric_limits<int64_t>::min(),
                               std::numeric_limits<int64_t>::max(), Unit::kMicroseconds};

bool ParseNumber(ParameterKind kind, absl::string_view text, InferParameter* parameter) {
  int64_t integer;
  uint64_t natural;
  double real;
  switch (kind) {
    case ParameterKind::kInteger:
      if (!ParseQuantity(text, Unit::kNone, &integer)) return false;
      parameter->set_int64_param(integer);
      return true;
    case ParameterKind::kDuration:
      if (!kAnyDuration.Parse(text, &integer)) return false;
      parameter->set_int64_param(integer);
      return true;
    case ParameterKind::kUnsigned:
      if (text.find('-') != text.npos || !absl::SimpleAtoi(text, &natural)) return false;
      parameter->set_uint64_param(natural);
      return true;
    default:
      if (!ParseFiniteNumber(text, &real)) return false;
      parameter->set_double_param(real);
      return true;
  }
}

bool Parse(ParameterKind kind, absl::Span<const std::string> values, InferParameter* parameter) {
  const absl::string_view text = values.front();
  switch (kind) {
    case ParameterKind::kTexts:
      return ParseTexts(values, parameter);
    case ParameterKind::kIds:
      return ParseIdList(text, parameter);
    case ParameterKind::kBiases:
      return ParseBiases(text, parameter);
    case ParameterKind::kSwitch:
      parameter->set_bool_param(text == "true");
      return text == "true" || text == "false";
    case ParameterKind::kWord:
    case ParameterKind::kName:
    case ParameterKind::kSpans:
      parameter->set_string_param(values.front());
      return IsUtf8(values.front());
    default:
      return ParseNumber(kind, text, parameter);
  }
}

// Returns whether `value` can be sent unchanged.
bool IsWireForm(ParameterKind kind, const json& value) {
  const auto all = [&](auto&& predicate) {
    return std::all_of(value.begin(), value.end(), predicate);
  };
  switch (kind) {
    case ParameterKind::kIds:
      return value.is_array() && all([](const json& id) { return id.is_number_integer(); });
    case ParameterKind::kBiases:
      return value.is_object() &&
             all([](const json& bias) { return bias.is_number() || bias.is_null(); });
    case ParameterKind::kTexts:
      return value.is_array() && all([](const json& text) { return text.is_string(); });
    case ParameterKind::kSpans:
      return value.is_array() && all([](const json& row) { return row.is_array(); });
    default:
      return false;
  }
}

// Returns whether `value` has the same form as a flag. Numbers are read from their digits, so that
// lines and flags follow the same rule; strings are for values with suffixes.
bool IsFlagForm(ParameterKind kind, const json& value) {
  switch (kind) {
    case ParameterKind::kInteger:
    case ParameterKind::kUnsigned:
    case ParameterKind::kReal:
      return value.is_number();
    case ParameterKind::kDuration:
      return value == 0 || value.is_string();
    case ParameterKind::kWord:
    case ParameterKind::kName:
      return value.is_string();
    case ParameterKind::kSwitch:
      return value.is_boolean();
    default:
      return false;
  }
}

}  // namespace

const std::vector<const ParameterInfo*>& Parameters() {
  static const auto* const parameters = [] {
    auto* all = new std::vector<const ParameterInfo*>;
    for (const ParameterInfo& info : RequestParameters()) {
      if (!info.client_name.empty()) all->push_back(&info);
    }
    return all;
  }();
  return *parameters;
}

std::string FlagOf(const ParameterInfo& info) {
  return absl::StrCat("--", absl::StrReplaceAll(View(info.client_name), {{"_", "-"}}));
}

std::string HelpOf(const ParameterInfo& info) {
  return absl::StrCat(View(info.help), FormOf(info), " Default: ", info.DefaultText(), ".");
}

absl::Status SetParameter(const ParameterInfo& info, absl::Span<const std::string> values,
                          ModelInferRequest* request) {
  InferParameter parameter;
  if (!Parse(info.kind(), values, &parameter)) {
    return NotExpected(info, absl::StrCat(ExpectedOf(info.kind()), ", got ",
                                          Quote(absl::string_view(values[0]).substr(0, 80))));
  }
  (*request->mutable_parameters())[std::string(info.name)] = parameter;
  return absl::OkStatus();
}

absl::Status SetParameterFromJson(const ParameterInfo& info, const json& value,
                                  ModelInferRequest* request) {
  const bool one_text = info.kind() == ParameterKind::kTexts && value.is_string();
  if (one_text) return SetParameter(info, {value.get<std::string>()}, request);
  if (IsWireForm(info.kind(), value)) {
    (*request->mutable_parameters())[std::string(info.name)].set_string_param(value.dump());
    return absl::OkStatus();
  }
  if (!IsFlagForm(info.kind(), value)) return NotExpected(info, ExpectedJsonOf(info.kind()));
  return SetParameter(info, {value.is_string() ? value.get<std::string>() : value.dump()}, request);
}

}  // namespace sluice::client
