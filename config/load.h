// Configuration from files and from single values, with where each came from.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "config/config.h"
#include "config/option.h"

namespace sluice {

// Sets what the YAML text names and leaves the rest alone. The text is strict: an unknown or
// duplicate key, a wrong type or an out-of-range value is InvalidArgument "FILE:LINE: KEY:
// PROBLEM". Relative model paths start at `file`'s directory.
absl::Status LoadYaml(absl::string_view text, const std::string& file, Config* config,
                      Origins* origins);

// Reads the file, at most kMaxYamlBytes of it, for LoadYaml. NotFound and the like name the file.
absl::Status LoadYamlFile(const std::string& path, Config* config, Origins* origins);

// "NAME=DIR" or "NAME:VERSION=DIR"; `origin` is for the error.
absl::StatusOr<ModelSpec> ParseModelSpec(absl::string_view text, const std::string& origin);

}  // namespace sluice
