// Formats the result of SizeReplicas as text and as configuration.
#pragma once

#include <string>

#include "loadtest/size/sizing.h"
#include "nlohmann/json.hpp"

namespace sluice::loadtest {

// Returns a table of the rows and a sentence with the verdict.
std::string SizingTable(const Sizing& sizing, const SizingOptions& options);

// Returns the daemon's configuration for each replica: the simulated ladder and batches.
std::string SizingYaml(const Sizing& sizing, const SizingOptions& options);

nlohmann::json SizingToJson(const Sizing& sizing, const SizingOptions& options);

}  // namespace sluice::loadtest
