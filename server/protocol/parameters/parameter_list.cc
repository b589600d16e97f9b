#include "server/protocol/parameters/parameter_list.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <variant>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/json_reader.h"
#include "base/status_macros.h"
#include "server/common/status.h"
#include "server/protocol/parameters/parameter_value.h"

namespace sluice {
namespace {

using nlohmann::json;

// One item of a list: null, a string, or a number. Integers below 2^53 are exact.
using Item = std::variant<std::nullptr_t, std::string, double>;

// Passes the items of one array, or the members of one object, to `take` in their order. Reading
// stops if it returns false.
struct FlatReader final : nlohmann::json_sax<json> {
  enum class Kind { kArray, kObject };
  using Take = std::function<bool(const std::string& key, const Item& item)>;

  FlatReader(Kind kind, Take taker) : expected(kind), take(std::move(taker)) {}

  bool null() override { return Give(nullptr); }
  bool boolean(bool) override { return false; }
  bool number_integer(number_integer_t value) override { return Give(static_cast<double>(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    return Give(static_cast<double>(value));
  }
  bool number_float(number_float_t value, const string_t&) override { return Give(value); }
  bool string(string_t& value) override { return Give(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return Open(Kind::kObject); }
  bool key(string_t& value) override {
    last_key = std::move(value);
    return true;
  }
  bool end_object() override { return true; }
  bool start_array(size_t) override { return Open(Kind::kArray); }
  bool end_array() override { return true; }
  bool parse_error(size_t, const std::string&, const json::exception&) override { return false; }

  bool Open(Kind kind) { return kind == expected && !std::exchange(opened, true); }
  bool Give(const Item& item) { return opened && take(last_key, item); }

  const Kind expected;
  const Take take;
  std::string last_key;
  bool opened = false;
};

// Reads a flat array or object. An error of `take` takes precedence over an error in the text.
absl::Status ReadFlat(absl::string_view name, const inference::InferParameter& value,
                      FlatReader::Kind kind, absl::string_view expected,
                      const std::function<absl::Status(const std::string&, const Item&)>& take) {
  absl::Status status;
  FlatReader reader(kind, [&](const std::string& key, const Item& item) {
    status = take(key, item);
    return status.ok();
  });
  const bool whole = json::sax_parse(value.string_param(), &reader);
  SLUICE_RETURN_IF_ERROR(status);
  return whole ? absl::OkStatus() : Expected(name, value, expected);
}

absl::Status TooMany(absl::string_view name, size_t most) {
  return ParameterError(name, absl::StrCat("has more than ", most, " entries"));
}

absl::Status CheckId(absl::string_view name, double id, int64_t vocab) {
  if (id >= 0 && id < static_cast<double>(vocab) && id == static_cast<int64_t>(id)) {
    return absl::OkStatus();
  }
  return ParameterError(name,
                        absl::StrCat("token ", id, " is not an integer in [0, ", vocab - 1, "]"));
}

// Parses an id from a JSON key or a comma-separated list: digits only.
absl::Status ParseId(absl::string_view name, absl::string_view text, int64_t vocab, int32_t* id) {
  int64_t parsed = 0;
  if (!absl::SimpleAtoi(text, &parsed) || parsed < 0 || parsed >= vocab ||
      absl::StrCat(parsed) != text) {
    return ParameterError(name, absl::StrCat("token ", Printable(text),
                                             " is not an integer in [0, ", vocab - 1, "]"));
  }
  *id = static_cast<int32_t>(parsed);
  return absl::OkStatus();
}

absl::Status Twice(absl::string_view name, int32_t id) {
  return ParameterError(name, absl::StrCat("token ", id, " appears twice"));
}

std::optional<float> BiasOf(const Item& item) {
  constexpr float kBan = -std::numeric_limits<float>::infinity();
  if (std::holds_alternative<std::nullptr_t>(item)) return kBan;
  if (const auto* text = std::get_if<std::string>(&item)) {
    return *text == "-inf" ? std::optional(kBan) : std::nullopt;
  }
  const double bias = std::get<double>(item);
  if (bias < -kMaxBias || bias > kMaxBias) return std::nullopt;
  return static_cast<float>(bias);
}

absl::Status ReadIdArray(absl::string_view name, const inference::InferParameter& value,
                         int64_t vocab, size_t most, std::vector<int32_t>* out) {
  return ReadFlat(
      name, value, FlatReader::Kind::kArray, "a JSON array of token ids",
      [&](const std::string&, const Item& item) {
        if (out->size() == most) return TooMany(name, most);
        const auto* id = std::get_if<double>(&item);
        if (id == nullptr) {
          return ParameterError(
              name, absl::StrCat("has an entry that is not a token id; expected integers in [0, ",
                                 vocab - 1, "]"));
        }
        SLUICE_RETURN_IF_ERROR(CheckId(name, *id, vocab));
        out->push_back(static_cast<int32_t>(*id));
        return absl::OkStatus();
      });
}

absl::Status SplitIds(absl::string_view name, absl::string_view text, int64_t vocab, size_t most,
                      std::vector<int32_t>* out) {
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    if (out->size() == most) return TooMany(name, most);
    int32_t id = 0;
    SLUICE_RETURN_IF_ERROR(ParseId(name, part, vocab, &id));
    out->push_back(id);
  }
  return absl::OkStatus();
}

absl::Status AddText(absl::string_view name, absl::string_view text, size_t most,
                     std::vector<std::string>* out) {
  if (out->size() == most) return TooMany(name, most);
  if (text.empty() || text.size() > kMaxStopTextBytes) {
    return ParameterError(name, absl::StrCat("a text has ", text.size(), " bytes; expected 1 to ",
                                             kMaxStopTextBytes));
  }
  out->emplace_back(text);
  return absl::OkStatus();
}

// Reads [begin, end].
std::optional<TextSpan> SpanOf(const json& span) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (!span.is_array() || span.size() != 2) return std::nullopt;
  if (!span[0].is_number_unsigned() || !span[1].is_number_unsigned()) return std::nullopt;
  const auto begin = span[0].get<uint64_t>(), end = span[1].get<uint64_t>();
  if (begin >= end || end > kMost) return std::nullopt;
  return TextSpan{static_cast<int32_t>(begin), static_cast<int32_t>(end)};
}

absl::Status ReadSpansOfRow(absl::string_view name, size_t row, const json& list,
                            std::vector<TextSpan>* out) {
  if (!list.is_array() || list.size() > kMostSpans) {
    return ParameterError(name, absl::StrCat("[", row, "] is not a list of at most ", kMostSpans,
                                             " spans [begin, end]"));
  }
  for (size_t i = 0; i < list.size(); ++i) {
    const std::optional<TextSpan> span = SpanOf(list[i]);
    if (!span) {
      return ParameterError(
          name, absl::StrCat("[", row, "][", i, "] is ", list[i].dump(-1, ' ', true).substr(0, 80),
                             "; expected [begin, end] with 0 <= begin < end < 2^31"));
    }
    out->push_back(*span);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadTokenBias(absl::string_view name, const inference::InferParameter& value,
                           int64_t vocab, std::vector<kernels::TokenBias>* out) {
  absl::flat_hash_set<int32_t> seen;
  const auto take = [&](const std::string& key, const Item& item) {
    if (out->size() == kMaxBiasEntries) return TooMany(name, kMaxBiasEntries);
    int32_t token = 0;
    SLUICE_RETURN_IF_ERROR(ParseId(name, key, vocab, &token));
    if (!seen.insert(token).second) return Twice(name, token);
    const std::optional<float> bias = BiasOf(item);
    if (!bias) {
      return ParameterError(name, absl::StrCat("the bias of token ", token, " is not a number in [",
                                               -kMaxBias, ", ", kMaxBias, "], null or \"-inf\""));
    }
    out->push_back({token, *bias});
    return absl::OkStatus();
  };
  return ReadFlat(name, value, FlatReader::Kind::kObject,
                  "a JSON object of token ids and their biases", take);
}

absl::Status ReadTokenIds(absl::string_view name, const inference::InferParameter& value,
                          int64_t vocab, size_t most, std::vector<int32_t>* out) {
  const std::string& text = value.string_param();
  absl::Status status;
  if (absl::StartsWith(text, "[")) {
    status = ReadIdArray(name, value, vocab, most, out);
  } else if (text.empty()) {
    status = Expected(name, value, "token ids, as a JSON array or separated by commas");
  } else {
    status = SplitIds(name, text, vocab, most, out);
  }
  SLUICE_RETURN_IF_ERROR(status);
  std::sort(out->begin(), out->end());
  const auto twice = std::adjacent_find(out->begin(), out->end());
  return twice == out->end() ? absl::OkStatus() : Twice(name, *twice);
}

absl::Status ReadSpans(absl::string_view name, const inference::InferParameter& value,
                       std::vector<std::vector<TextSpan>>* out) {
  constexpr size_t kMaxBytes = size_t{1} << 20;
  constexpr int kDepth = 3;
  const std::string& text = value.string_param();
  if (text.size() > kMaxBytes) {
    return ParameterError(name,
                          absl::StrCat("has ", text.size(), " bytes; the limit is ", kMaxBytes));
  }
  const absl::StatusOr<json> lists = ParseJson(text, kDepth);
  if (!lists.ok() || !lists->is_array()) {
    return Expected(name, value, "a JSON array with a list of [begin, end] for each row");
  }
  for (size_t row = 0; row < lists->size(); ++row) {
    SLUICE_RETURN_IF_ERROR(ReadSpansOfRow(name, row, (*lists)[row], &out->emplace_back()));
  }
  return absl::OkStatus();
}

absl::Status ReadTexts(absl::string_view name, const inference::InferParameter& value, size_t most,
                       std::vector<std::string>* out) {
  if (!absl::StartsWith(value.string_param(), "[")) {
    if (value.parameter_choice_case() != inference::InferParameter::kStringParam) {
      return Expected(name, value, "a text or a JSON array of texts");
    }
    return AddText(name, value.string_param(), most, out);
  }
  const auto take = [&](const std::string&, const Item& item) {
    const auto* text = std::get_if<std::string>(&item);
    if (text == nullptr)
      return ParameterError(name,
                            "has an entry that is not a text; expected a JSON array of texts");
    return AddText(name, *text, most, out);
  };
  return ReadFlat(name, value, FlatReader::Kind::kArray, "a JSON array of texts", take);
}

}  // namespace sluice
