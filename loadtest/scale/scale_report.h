// What became of a day, to be read.
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

// One line for each run.
std::string ScaleTable(const std::vector<FleetRun>& runs, const FleetOptions& options);

nlohmann::json ScaleToJson(const std::vector<FleetRun>& runs, const FleetOptions& options);

// Replicas, p99 and cost over the day, one above the other, as an SVG image that needs nothing
// else.
std::string ScalePlot(const std::vector<FleetRun>& runs, const FleetOptions& options);

}  // namespace sluice::loadtest
