// Renders the answer of `sluice stats`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "client/metrics_text.h"
#include "proto/inference.pb.h"

namespace sluice::client {

// Returns the counts since the model was loaded and the mean durations of successful requests.
std::string StatisticsTable(const inference::ModelStatisticsResponse& statistics);

// Returns the efficiencies of the same models from the metrics: bucket fill = useful /
// bucket tokens, executed efficiency = useful / computed tokens, plan hits = hits / lookups.
std::string EfficiencyTable(const inference::ModelStatisticsResponse& statistics,
                            const std::vector<Sample>& samples);

// Returns the server's answer. With samples, each model also has the counts that its efficiencies
// are computed from.
nlohmann::json StatisticsJson(const inference::ModelStatisticsResponse& statistics,
                              const std::vector<Sample>* samples);

}  // namespace sluice::client
