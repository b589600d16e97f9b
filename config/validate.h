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

}  // namespace sluice
