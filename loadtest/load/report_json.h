// Makes the parts of a JSON report. The name of each time contains its unit. The number of the
// format increases when a meaning changes.
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

// Returns a phase without its verdict and the server's counts.
nlohmann::json PhaseJson(const PhaseStats& stats, const PhaseData& data);

// Returns the server's counts for a phase: rates between readings, used buckets and totals.
nlohmann::json ServerJson(const std::vector<Reading>& readings, const Reconciliation& counts);

}  // namespace sluice::load
