// The tables of `sluice stats`.
#pragma once

#include <string>
#include <vector>

#include "client/metrics_text.h"
#include "proto/inference.pb.h"

namespace sluice::client {

// Counts since the model was loaded, and mean durations of successful requests.
std::string StatisticsTable(const inference::ModelStatisticsResponse& statistics);

// The same models, from the metrics: padding efficiency = useful / bucket tokens, executed
// efficiency = useful / computed tokens, plan hits = hits / lookups.
std::string EfficiencyTable(const inference::ModelStatisticsResponse& statistics,
                            const std::vector<Sample>& samples);

}  // namespace sluice::client
