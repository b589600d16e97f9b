// Rules that span several options, for a configuration whose single values are in their ranges.
#pragma once

#include "absl/status/status.h"
#include "config/config.h"
#include "config/option.h"

namespace sluice {

// InvalidArgument "ORIGIN: PATH: PROBLEM": no models, two models with one name and version, a fixed
// ladder that is empty, unordered or above the maximum, sizes, files or addresses that contradict
// others.
absl::Status ValidateConfig(const Config& config, const Origins& origins);

// Looks for each model's directory and its config.json; nothing is loaded. NotFound names the first
// that is missing.
absl::Status CheckModelDirectories(const Config& config, const Origins& origins);

}  // namespace sluice
