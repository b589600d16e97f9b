// The parts of a JSON report. Times are in the unit that their name says. The format's number goes
// up when a meaning changes.
#pragma once

#include <string>
#include <vector>

#include "loadtest/load/daemon_metrics.h"
#include "loadtest/load/run.h"
#include "loadtest/load/stats.h"
#include "nlohmann/json.hpp"

namespace sluice::load {

inline constexpr int kReportFormat = 1;

// Name, processors, memory and kernel of this machine.
nlohmann::json HostJson();

nlohmann::json DistributionJson(const Distribution& distribution);  // ms

// All of a phase but its verdict and what the server says.
nlohmann::json PhaseJson(const PhaseStats& stats, const PhaseData& data);

// What the server says of a phase: rates between readings, the buckets used, its counts.
nlohmann::json ServerJson(const std::vector<Reading>& readings, const Reconciliation& counts);

}  // namespace sluice::load
