// Lists all options of the daemon. The YAML loader, the flags, the environment, the help text, the
// printed configuration and the commented default file are generated from this list.
//
// The path of an option is the path of its member in struct Config: `engine.batch.max_batch_tokens`
// is the key in YAML, --engine.batch.max-batch-tokens the flag and
// SLUICE_ENGINE_BATCH_MAX_BATCH_TOKENS the environment variable. Help texts and ranges are in the
// OptionSpecs of the structs in Config: engine/option_specs.cc and server/common/option_specs.cc.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/option_spec.h"
#include "config/config.h"

namespace sluice {

template <>
const std::vector<OptionSpec<Config>>& OptionSpecs<Config>();

// Returns the name of the environment variable that sets the option.
std::string VariableOf(absl::string_view path);

struct Option : OptionSpec<Config> {
  std::string Environment() const { return VariableOf(path); }
};

// Returns the help text, and whether a reload or a restart applies the option.
std::string HelpOf(const Option& option);

// Returns all options. Options of the same section are adjacent.
const std::vector<Option>& Options();

// Returns nullptr if no option has the path.
const Option* FindOption(absl::string_view path);

// Returns the keys directly under `section` ("" is the top level), both sections and options, or an
// empty list if there is no such section.
std::vector<std::string> KeysUnder(absl::string_view section);

// The source of each value: a path maps to "FILE:LINE", "environment NAME" or "flag NAME". An
// option that is not in the map has its default. The list of models has the path "models".
using Origins = std::map<std::string, std::string, std::less<>>;
std::string OriginOf(const Origins& origins, absl::string_view path);

// Returns InvalidArgument "ORIGIN: PATH: PROBLEM".
absl::Status ConfigError(absl::string_view origin, absl::string_view path,
                         absl::string_view problem);

// Sets an option and records the origin. An error names origin, option, the expected value and the
// actual text.
absl::Status SetOption(const Option& option, absl::string_view text, const std::string& origin,
                       Config* config, Origins* origins);

}  // namespace sluice
