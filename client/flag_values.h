// Helpers for the flags of the commands.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/option_value.h"

namespace sluice::client {

inline constexpr size_t kHelpIndent = 26;

// Wraps the text to the width that is left beside the flags.
std::string Help(absl::string_view text);

CLI::App* AddCommand(const char* name, const char* description, CLI::App* app);

absl::Status FlagError(absl::string_view flag, absl::string_view problem);

absl::Status ValueError(absl::string_view flag, absl::string_view expected, absl::string_view text);

// `kind` is one of those in base/option_value.h.
template <typename Kind, typename T>
absl::Status ReadFlag(absl::string_view flag, const Kind& kind, absl::string_view text, T* value) {
  if (kind.Parse(text, value)) return absl::OkStatus();
  return ValueError(flag, kind.Expected(), text);
}

}  // namespace sluice::client
