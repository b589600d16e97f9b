// Helpers of the commands' flags.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "config/value.h"

namespace sluice::client {

inline constexpr size_t kHelpIndent = 26;

// `text` in lines that fit beside the flags.
std::string Help(absl::string_view text);

CLI::App* AddCommand(const char* name, const char* description, CLI::App* app);

absl::Status FlagError(absl::string_view flag, absl::string_view problem);

// `kind` is one of config/value.h.
template <typename Kind, typename T>
absl::Status ReadFlag(absl::string_view flag, const Kind& kind, absl::string_view text, T* value) {
  if (kind.Parse(text, value)) return absl::OkStatus();
  return FlagError(flag,
                   absl::StrCat("expected ", kind.Expected(), ", got ", Quote(text.substr(0, 80))));
}

}  // namespace sluice::client
