// Helpers for the flags of the commands.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/option_value.h"

namespace sluice::client {

inline constexpr size_t kHelpIndent = 26;

// Wraps the text to the width of the help column, to the right of the flags.
std::string Help(absl::string_view text);

CLI::App* AddCommand(const char* name, const char* description, CLI::App* app);

absl::Status FlagError(absl::string_view flag, absl::string_view problem);

absl::Status ValueError(absl::string_view flag, absl::string_view expected, absl::string_view text);

// `kind` is one of the kinds in base/option_value.h.
template <typename Kind, typename T>
absl::Status ReadFlag(absl::string_view flag, const Kind& kind, absl::string_view text, T* value) {
  if (kind.Parse(text, value)) return absl::OkStatus();
  return ValueError(flag, kind.Expected(), text);
}

// A kind of value, like the kinds in base/option_value.h.
struct NonNegative {
  std::string Expected() const { return "a number of 0 or more"; }
  bool Parse(absl::string_view text, double* value) const {
    double parsed;
    if (!absl::SimpleAtod(text, &parsed) || !(parsed >= 0)) return false;
    *value = parsed;
    return true;
  }
};

// Throws CLI::ValidationError with the message of `status`, which ends the parse.
void EndParseOn(const absl::Status& status);

// Adds a flag with one value, or a positional argument if the name has no dashes. An error of
// `read` ends the parse.
CLI::Option* AddFlag(const std::string& flag, absl::string_view help, CLI::App* command,
                     std::function<absl::Status(const std::string&)> read);

// Adds a flag whose value has this kind.
template <typename Kind, typename T>
CLI::Option* AddFlag(const std::string& flag, absl::string_view help, CLI::App* command,
                     const Kind& kind, T* value) {
  return AddFlag(flag, help, command,
                 [=](const std::string& text) { return ReadFlag(flag, kind, text, value); });
}

}  // namespace sluice::client
