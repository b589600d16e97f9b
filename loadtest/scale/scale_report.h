// Formats a simulated day as a table and as an image.
#pragma once

#include <string>
#include <vector>

#include "loadtest/scale/fleet.h"
#include "nlohmann/json.hpp"

namespace sluice::loadtest {

struct FleetRun {
  std::string name;
  FleetResult result;
};

// Returns a table with one line for each run.
std::string ScaleTable(const std::vector<FleetRun>& runs, const FleetOptions& options);

nlohmann::json ScaleToJson(const std::vector<FleetRun>& runs, const FleetOptions& options);

// Returns an SVG image without external references that shows replicas, p99 and cost over the day,
// one above the other.
std::string ScalePlot(const std::vector<FleetRun>& runs, const FleetOptions& options);

}  // namespace sluice::loadtest
