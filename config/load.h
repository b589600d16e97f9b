// Reads the configuration from files and from single values, and records where each came from.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "config/config.h"
#include "config/option.h"

namespace sluice {

// Sets the options that the YAML text names; other options keep their values. Relative model paths
// start at `file`'s directory. Returns InvalidArgument "FILE:LINE: KEY: PROBLEM" for an unknown or
// duplicate key, a wrong type or a value out of its range. If the text has keys of an earlier
// release, appends "FILE:LINE: KEY: REMEDY" for each to `old` and sets nothing.
absl::Status LoadYaml(absl::string_view text, const std::string& file, Config* config,
                      Origins* origins, std::vector<std::string>* old);

// Reads the file, at most kMaxYamlBytes of it, for LoadYaml. An error such as NotFound names the
// file.
absl::Status LoadYamlFile(const std::string& path, Config* config, Origins* origins,
                          std::vector<std::string>* old);

// Reads "NAME=DIR", "NAME:VERSION=DIR" or "DIR", whose last folder is then the name. An error names
// `origin`.
absl::StatusOr<ModelSpec> ParseModelSpec(absl::string_view text, const std::string& origin);

}  // namespace sluice
