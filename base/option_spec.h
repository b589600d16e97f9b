// Specs of options. Each option is specified once, in the list of specs next to its option struct.
// YAML, flags, environment, help, the default file, docs/options.md, the journal's JSON and the
// simulators' flags are made from the list. The default is the initial value in the struct.
//
//   template <>
//   const std::vector<OptionSpec<QueueOptions>>& OptionSpecs() {
//     using S = QueueOptions;
//     static const auto& specs = *new auto(SpecsOfAllMembers<S>({
//         SLUICE_OPTION(max_requests, Count(1, 1'000'000), "The most requests ..."),
//         SLUICE_DURATION(max_wait, Duration(kHourUs), "The longest wait ..."),  // max_wait_us
//         SLUICE_SECTION(limits),  // a struct with specs of its own
//     }));
//     return specs;
//   }
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/member_count.h"
#include "base/option_value.h"

namespace sluice {

// The person who sets an option. This decides where the option is shown.
enum class Tier {
  kBasic,     // an operator: in the default file, in --help, and first in docs/options.md
  kAdvanced,  // an expert, once: in --help-all, and last in docs/options.md
  kTest,      // tests and fault injection: in none of them
};

// A value for formats with types. Lists, enumerators and similar values are text.
using OptionValue = std::variant<bool, int64_t, double, std::string>;

// One member of the option struct S, or a member of a struct within S.
template <typename S>
struct OptionSpec {
  std::string path;      // the names of its structs and the member: "review.min_gain"
  std::string help;      // effect and special values, in whole sentences
  std::string expected;  // type, unit and range; follows "expected" in an error
  Shape shape = Shape::kScalar;
  bool live = false;  // a reload applies a change; otherwise it takes a restart
  Tier tier = Tier::kBasic;

  // The range of a number, or the words to choose from. Neither is set for other kinds.
  std::optional<Integer> integer{};
  std::optional<Real> real{};
  std::vector<std::string> words{};

  // Returns false and leaves the options unchanged if the text is not a value in the range.
  std::function<bool(absl::string_view text, S* options)> parse;
  std::function<std::string(const S& options)> format;  // as YAML
  std::function<OptionValue(const S& options)> get;
  // The same for a typed value. Also returns false if the type is wrong.
  std::function<bool(const OptionValue& value, S* options)> set;
  std::function<void(const S& from, S* to)> copy;

  std::string Flag() const { return absl::StrCat("--", absl::StrReplaceAll(path, {{"_", "-"}})); }
};

// The specs of all members of S. The specs of a struct within S are next to each other.
template <typename S>
const std::vector<OptionSpec<S>>& OptionSpecs();

// Requires that S has an option with this path.
template <typename S>
const OptionSpec<S>& OptionSpecOf(absl::string_view path) {
  for (const OptionSpec<S>& spec : OptionSpecs<S>()) {
    if (spec.path == path) return spec;
  }
  SLUICE_CHECK(false && "no such option");
}

// Returns lines of YAML, "PATH: VALUE".
template <typename S>
std::string FormatOptions(const S& options, std::initializer_list<absl::string_view> paths,
                          size_t indent) {
  std::string lines;
  for (const absl::string_view path : paths) {
    absl::StrAppend(&lines, std::string(indent, ' '), path, ": ",
                    OptionSpecOf<S>(path).format(options), "\n");
  }
  return lines;
}

// Returns the lines of all options.
template <typename S>
std::string FormatOptions(const S& options, size_t indent) {
  std::string lines;
  for (const OptionSpec<S>& spec : OptionSpecs<S>()) {
    lines += FormatOptions(options, {spec.path}, indent);
  }
  return lines;
}

namespace option_internal {

template <typename T, typename Kind>
OptionValue Get(const T& value, const Kind& kind) {
  if constexpr (std::same_as<T, bool> || std::same_as<T, double> || std::same_as<T, std::string>) {
    return value;
  } else if constexpr (std::integral<T>) {
    return int64_t{value};
  } else {
    return kind.Format(value);
  }
}

template <typename T, typename Kind>
bool Set(const OptionValue& from, const Kind& kind, T* value) {
  if constexpr (std::same_as<T, bool>) {
    const bool* const flag = std::get_if<bool>(&from);
    if (flag != nullptr) *value = *flag;
    return flag != nullptr;
  } else if constexpr (std::integral<T>) {
    const int64_t* const number = std::get_if<int64_t>(&from);
    if (number == nullptr || !kind.Contains(*number)) return false;
    *value = static_cast<T>(*number);
    return true;
  } else if constexpr (std::same_as<T, double>) {
    const double* const number = std::get_if<double>(&from);
    if (number == nullptr || !kind.Contains(*number)) return false;
    *value = *number;
    return true;
  } else {
    const std::string* const text = std::get_if<std::string>(&from);
    return text != nullptr && kind.Parse(*text, value);
  }
}

}  // namespace option_internal

// The entry of one member of S: one spec, or the specs of a member that is a struct.
template <typename S>
using MemberSpecs = std::vector<OptionSpec<S>>;

template <typename S, typename T, typename Kind>
MemberSpecs<S> SpecOfMember(const char* name, T S::*member, Kind kind, const char* help) {
  OptionSpec<S> spec{
      .path = name,
      .help = help,
      .expected = kind.Expected(),
      .shape = Kind::kShape,
      .parse = [=](absl::string_view text, S* to) { return kind.Parse(text, &(to->*member)); },
      .format = [=](const S& options) { return kind.Format(options.*member); },
      .get = [=](const S& options) { return option_internal::Get(options.*member, kind); },
      .set = [=](const OptionValue& value,
                 S* to) { return option_internal::Set(value, kind, &(to->*member)); },
      .copy = [=](const S& from, S* to) { to->*member = from.*member; }};
  if constexpr (std::same_as<Kind, Integer>) spec.integer = kind;
  if constexpr (std::same_as<Kind, Real>) spec.real = kind;
  if constexpr (std::same_as<Kind, OneOf>) spec.words = kind.words;
  if constexpr (requires { kind.Words(); }) spec.words = kind.Words();
  return {std::move(spec)};
}

template <typename S, typename Inner>
MemberSpecs<S> SpecsOfSection(const char* name, Inner S::*member) {
  MemberSpecs<S> lifted;
  for (const OptionSpec<Inner>& inner : OptionSpecs<Inner>()) {
    lifted.push_back(
        {.path = absl::StrCat(name, ".", inner.path),
         .help = inner.help,
         .expected = inner.expected,
         .shape = inner.shape,
         .live = inner.live,
         .tier = inner.tier,
         .integer = inner.integer,
         .real = inner.real,
         .words = inner.words,
         .parse = [=, parse = inner.parse](absl::string_view text,
                                           S* to) { return parse(text, &(to->*member)); },
         .format = [=, format = inner.format](const S& from) { return format(from.*member); },
         .get = [=, get = inner.get](const S& from) { return get(from.*member); },
         .set = [=, set = inner.set](const OptionValue& value,
                                     S* to) { return set(value, &(to->*member)); },
         .copy = [=, copy = inner.copy](const S& from,
                                        S* to) { copy(from.*member, &(to->*member)); }});
  }
  return lifted;
}

// A member that has no spec because it is read in another way.
template <typename S>
MemberSpecs<S> NoOption() {
  return {};
}

template <typename S>
MemberSpecs<S> Live(MemberSpecs<S> specs) {
  for (OptionSpec<S>& spec : specs) spec.live = true;
  return specs;
}

template <typename S>
MemberSpecs<S> InTier(Tier tier, MemberSpecs<S> specs) {
  for (OptionSpec<S>& spec : specs) spec.tier = tier;
  return specs;
}

template <typename S>
MemberSpecs<S> Advanced(MemberSpecs<S> specs) {
  return InTier(Tier::kAdvanced, std::move(specs));
}

template <typename S>
MemberSpecs<S> ForTests(MemberSpecs<S> specs) {
  return InTier(Tier::kTest, std::move(specs));
}

// Does not compile unless each member of S has an entry.
template <typename S, size_t n>
std::vector<OptionSpec<S>> SpecsOfAllMembers(MemberSpecs<S> (&&members)[n]) {
  static_assert(n == MemberCount<S>(), "each member of an option struct has an OptionSpec");
  std::vector<OptionSpec<S>> all;
  for (MemberSpecs<S>& specs : members) {
    for (OptionSpec<S>& spec : specs) all.push_back(std::move(spec));
  }
  return all;
}

// For a list of the specs of S. Path and member come from one token, so they always agree.
#define SLUICE_OPTION(member, kind, help) SpecOfMember<S>(#member, &S::member, kind, help)
// The option `name` of the member `name`_us: the value of a duration is written with its unit.
#define SLUICE_DURATION(name, kind, help) SpecOfMember<S>(#name, &S::name##_us, kind, help)
#define SLUICE_SECTION(member) SpecsOfSection<S>(#member, &S::member)

inline constexpr int64_t kSecondUs = 1'000'000;
inline constexpr int64_t kMinuteUs = 60 * kSecondUs;
inline constexpr int64_t kHourUs = 60 * kMinuteUs;
inline constexpr int64_t kDayUs = 24 * kHourUs;
inline constexpr int64_t kTebibyte = int64_t{1} << 40;

inline Integer Count(int64_t min, int64_t max) { return {min, max, Unit::kNone}; }
inline Integer Duration(int64_t max_us) { return {0, max_us, Unit::kMicroseconds}; }
inline Integer Timeout(int64_t max_us) { return {kSecondUs / 10, max_us, Unit::kMicroseconds}; }
inline Integer Size(int64_t min, int64_t max) { return {min, max, Unit::kBytes}; }

}  // namespace sluice
