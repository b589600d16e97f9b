// Checks the rules that span several options. Requires that each value is within its range.
#pragma once

#include "absl/status/status.h"
#include "config/config.h"
#include "config/option.h"

namespace sluice {

// Returns InvalidArgument "ORIGIN: PATH: PROBLEM" if there are no models, two models have the same
// name and version, a fixed ladder is empty, unordered or above the maximum, or sizes, files or
// addresses contradict each other.
absl::Status ValidateConfig(const Config& config, const Origins& origins);

// Checks that each model's directory and its config.json exist, without loading anything. Returns
// NotFound that names the first missing one.
absl::Status CheckModelDirectories(const Config& config, const Origins& origins);

}  // namespace sluice
