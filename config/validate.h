// Checks the rules that span several options. Requires that each value is in its range.
#pragma once

#include "absl/status/status.h"
#include "config/config.h"
#include "config/option.h"

namespace sluice {

// Returns InvalidArgument "ORIGIN: PATH: PROBLEM" if there are no models, two models have the same
// name and version, a fixed ladder is empty, unordered or above the maximum, or sizes, files or
// addresses contradict others.
absl::Status ValidateConfig(const Config& config, const Origins& origins);

// Looks for each model's directory and its config.json; loads nothing. Returns NotFound with the
// first that is missing.
absl::Status CheckModelDirectories(const Config& config, const Origins& origins);

}  // namespace sluice
