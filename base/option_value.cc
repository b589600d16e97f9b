#include "base/option_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/utf8.h"

namespace sluice {
namespace {

constexpr size_t kMaxPathBytes = 4096;
constexpr size_t kMaxListItems = 1024;

struct Suffix {
  absl::string_view name;
  int64_t factor;
};

// Descending, so that the first that divides a value is the largest.
constexpr Suffix kDurations[] = {
    {"h", 3'600'000'000}, {"min", 60'000'000}, {"s", 1'000'000}, {"ms", 1000}, {"us", 1}};
constexpr Suffix kSizes[] = {
    {"TiB", int64_t{1} << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}};

std::vector<Suffix> Suffixes(Unit unit) {
  switch (unit) {
    case Unit::kMicroseconds:
      return {std::begin(kDurations), std::end(kDurations)};
    case Unit::kBytes:
      return {std::begin(kSizes), std::end(kSizes)};
    case Unit::kNone:
      break;
  }
  return {};
}

std::optional<int64_t> Factor(absl::string_view suffix, Unit unit) {
  if (suffix.empty() && unit != Unit::kMicroseconds) return 1;
  for (const Suffix& known : Suffixes(unit)) {
    if (known.name == suffix) return known.factor;
  }
  return std::nullopt;
}

bool IsPort(absl::string_view text) {
  int32_t port;
  return !text.empty() && text.size() <= 5 &&
         std::all_of(text.begin(), text.end(), absl::ascii_isdigit) &&
         absl::SimpleAtoi(text, &port) && port <= 65535;
}

bool IsHost(absl::string_view host) {
  const bool bracketed = absl::ConsumePrefix(&host, "[");
  if (bracketed && !absl::ConsumeSuffix(&host, "]")) return false;
  return !host.empty() && std::all_of(host.begin(), host.end(), [&](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_' || (bracketed && c == ':');
  });
}

bool IsNameCharacter(unsigned char c) {
  return absl::ascii_isalnum(c) || c == '_' || c == '.' || c == '-';
}

void AppendEscaped(char byte, std::string* out) {
  absl::StrAppendFormat(out, "\\x%02x", static_cast<unsigned char>(byte));
}

std::string FormatReal(double value) {
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  return std::string(buffer, end);
}

}  // namespace

bool ParseQuantity(absl::string_view text, Unit unit, int64_t* value) {
  const size_t sign = text.substr(0, 1) == "-" ? 1 : 0;
  const size_t digits_end = std::min(text.find_first_not_of("0123456789", sign), text.size());
  if (digits_end == sign) return false;
  if (text == "0") {
    *value = 0;
    return true;
  }
  const auto factor = Factor(absl::StripLeadingAsciiWhitespace(text.substr(digits_end)), unit);
  int64_t number;
  if (!factor.has_value() || !absl::SimpleAtoi(text.substr(0, digits_end), &number)) return false;
  if (__builtin_mul_overflow(number, *factor, &number)) return false;
  *value = number;
  return true;
}

std::string FormatQuantity(int64_t value, Unit unit) {
  if (value != 0) {
    for (const Suffix& suffix : Suffixes(unit)) {
      if (value % suffix.factor == 0) return absl::StrCat(value / suffix.factor, suffix.name);
    }
  }
  return absl::StrCat(value);
}

std::string Quote(absl::string_view text) {
  std::string quoted = "\"";
  while (!text.empty()) {
    const Utf8Beginning next = MeasureUtf8(text);
    const absl::string_view character = text.substr(0, next.bytes);
    if (!next.complete) {
      for (const char byte : character) AppendEscaped(byte, &quoted);
    } else if (IsControl(character)) {
      AppendEscaped(character.back(), &quoted);  // its number, of one byte or of two
    } else {
      const bool special = character == "\"" || character == "\\";
      absl::StrAppend(&quoted, special ? "\\" : "", character);
    }
    text.remove_prefix(next.bytes);
  }
  return quoted + "\"";
}

std::string Integer::Expected() const {
  const std::string range =
      absl::StrCat("[", FormatQuantity(min, unit), ", ", FormatQuantity(max, unit), "]");
  switch (unit) {
    case Unit::kMicroseconds:
      return absl::StrCat("a duration in ", range, " with its unit: us, ms, s, min or h");
    case Unit::kBytes:
      return absl::StrCat("a size in ", range, " (B, KiB, MiB, GiB, TiB; plain numbers are bytes)");
    case Unit::kNone:
      break;
  }
  return absl::StrCat("an integer in ", range);
}

std::string IntegerList::Expected() const {
  return absl::StrFormat("a list of integers in [%d, %d], at most %d of them", item.min, item.max,
                         kMaxListItems);
}

bool IntegerList::Parse(absl::string_view text, std::vector<int32_t>* value) const {
  text = absl::StripAsciiWhitespace(text);
  if (absl::ConsumePrefix(&text, "[") && !absl::ConsumeSuffix(&text, "]")) return false;
  std::vector<int32_t> parsed;
  if (!absl::StripAsciiWhitespace(text).empty()) {
    for (absl::string_view piece : absl::StrSplit(text, ',')) {
      parsed.emplace_back();
      if (parsed.size() > kMaxListItems) return false;
      if (!item.Parse(absl::StripAsciiWhitespace(piece), &parsed.back())) return false;
    }
  }
  *value = std::move(parsed);
  return true;
}

std::string IntegerList::Format(const std::vector<int32_t>& value) const {
  return absl::StrCat("[", absl::StrJoin(value, ", "), "]");
}

std::string Real::Expected() const {
  return absl::StrCat("a number in ", above_min ? "(" : "[", FormatReal(min), ", ", FormatReal(max),
                      below_max ? ")" : "]");
}

bool Real::Contains(double value) const {
  return value >= min && value <= max && !(above_min && value == min) &&
         !(below_max && value == max);
}

bool Real::Parse(absl::string_view text, double* value) const {
  double parsed;
  // Decimal only: SimpleAtod reads hexadecimal and names too.
  if (text.find_first_not_of("0123456789+-.eE") != text.npos) return false;
  if (!absl::SimpleAtod(text, &parsed) || !std::isfinite(parsed)) return false;
  if (!Contains(parsed)) return false;
  *value = parsed;
  return true;
}

std::string Real::Format(double value) const { return FormatReal(value); }

bool Boolean::Parse(absl::string_view text, bool* value) const {
  if (text != "true" && text != "false") return false;
  *value = text == "true";
  return true;
}

std::string Name::Expected() const {
  return absl::StrCat("a name of 1 to ", max_length, " of the characters A-Z a-z 0-9 _ . -");
}

bool Name::Parse(absl::string_view text, std::string* value) const {
  if (text.empty() || text.size() > max_length) return false;
  if (!std::all_of(text.begin(), text.end(), IsNameCharacter)) return false;
  *value = std::string(text);
  return true;
}

std::string Path::Expected() const {
  return absl::StrCat("a path of ", may_be_empty ? "at most " : "1 to ", kMaxPathBytes,
                      " bytes of UTF-8 without control characters",
                      may_be_empty ? ", or nothing" : "");
}

bool Path::Parse(absl::string_view text, std::string* value) const {
  if (text.empty() && !may_be_empty) return false;
  if (text.size() > kMaxPathBytes || !IsUtf8(text)) return false;
  if (std::any_of(text.begin(), text.end(), absl::ascii_iscntrl)) return false;
  *value = std::string(text);
  return true;
}

std::string Address::Expected() const {
  return may_be_empty ? "HOST:PORT or nothing" : "HOST:PORT";
}

bool Address::Parse(absl::string_view text, std::string* value) const {
  const size_t colon = text.rfind(':');
  const bool valid = text.empty() ? may_be_empty
                                  : colon != text.npos && IsHost(text.substr(0, colon)) &&
                                        IsPort(text.substr(colon + 1));
  if (valid) *value = std::string(text);
  return valid;
}

bool OneOf::Parse(absl::string_view text, std::string* value) const {
  if (std::find(words.begin(), words.end(), text) == words.end()) return false;
  *value = std::string(text);
  return true;
}

}  // namespace sluice
