// Reads measured costs for the simulator.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "engine/schedule/cost_model.h"

namespace sluice::loadtest {

// Returns the costs in a ladder file of the daemon, or in a JSON object of the same form `{"costs":
// ..}`. Errors name the file.
absl::StatusOr<CostModel> ReadCosts(const std::string& path);

}  // namespace sluice::loadtest
