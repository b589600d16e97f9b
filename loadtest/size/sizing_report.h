// What SizeReplicas found, to be read.
#pragma once

#include <string>

#include "loadtest/size/sizing.h"
#include "nlohmann/json.hpp"

namespace sluice::loadtest {

// A table of the rows, and the verdict in a sentence.
std::string SizingTable(const Sizing& sizing, const SizingOptions& options);

// The daemon's configuration for each replica: the ladder and the batches that were simulated.
std::string SizingYaml(const Sizing& sizing, const SizingOptions& options);

nlohmann::json SizingToJson(const Sizing& sizing, const SizingOptions& options);

}  // namespace sluice::loadtest
