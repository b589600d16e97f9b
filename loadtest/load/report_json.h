// Makes the parts of a JSON report. The name of each time says its unit. The number of the format
// increases when a meaning changes.
#pragma once

#include <string>
#include <vector>

#include "loadtest/load/daemon_metrics.h"
#include "loadtest/load/run.h"
#include "loadtest/load/stats.h"
#include "nlohmann/json.hpp"

namespace sluice::load {

inline constexpr int kReportFormat = 1;

// Returns the name, processors, memory and kernel of this machine.
nlohmann::json HostJson();

nlohmann::json DistributionJson(const Distribution& distribution);  // in milliseconds

// Returns all of a phase but its verdict and the server's account.
nlohmann::json PhaseJson(const PhaseStats& stats, const PhaseData& data);

// Returns the server's account of a phase: rates between readings, the buckets used and its counts.
nlohmann::json ServerJson(const std::vector<Reading>& readings, const Reconciliation& counts);

}  // namespace sluice::load
