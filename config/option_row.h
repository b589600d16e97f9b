// What rows of the option table are made of.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>

#include "config/option.h"
#include "config/value.h"

namespace sluice {

template <typename Field, typename Kind>
Option MakeOption(std::string path, Field field, Kind kind, std::string help) {
  return {std::move(path),
          std::move(help),
          kind.Expected(),
          Kind::kShape,
          [=](absl::string_view text, Config* config) { return kind.Parse(text, &field(*config)); },
          [=](const Config& config) { return kind.Format(field(config)); },
          [=](const Config& from, Config* to) { field(*to) = field(from); }};
}

inline Option Live(Option option) {
  option.live = true;
  option.help += " A reload applies it.";
  return option;
}

// The path in YAML and the member it fills are one token, so they cannot drift apart.
#define OPTION(member, kind, help) \
  MakeOption(                      \
      #member, [](auto& config) -> auto& { return config.member; }, kind, help)

inline constexpr int64_t kMaxSize = int64_t{16} << 40;
inline constexpr int64_t kHourUs = 3'600'000'000;
inline constexpr int64_t kDayUs = 24 * kHourUs;

inline Integer Count(int64_t min, int64_t max) { return {min, max, Unit::kNone}; }
inline Integer Duration(int64_t max_us) { return {0, max_us, Unit::kMicroseconds}; }
inline Integer Timeout(int64_t max_us) { return {100'000, max_us, Unit::kMicroseconds}; }
inline Integer Size(int64_t min, int64_t max) { return {min, max, Unit::kBytes}; }

inline Choice<std::string> OneOf(std::initializer_list<std::string> names) {
  Choice<std::string> choice;
  for (const std::string& name : names) choice.choices.emplace_back(name, name);
  return choice;
}

}  // namespace sluice
