// Tests whether the adaptive ladder follows traffic that drifts.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "loadtest/simulate/experiment.h"
#include "nlohmann/json.hpp"

namespace sluice::loadtest {

struct DriftOptions {
  size_t count = 60'000;  // sequences of Lengths::kDrifting, a third in each phase
  int32_t cap = 8192;     // of a sequence's tokens
  double load = 0.5;      // of each phase; see ComparisonOptions
  uint64_t first_seed = 1;
  int seeds = 5;
  ExperimentOptions experiment{};  // except the policy and the strategy
};

// Runs the packed policy through the phases with one adaptive ladder that is always reviewed. Also
// runs each phase with a ladder fitted to that phase, its optimum. Returns an array with one object
// per phase, medians over the seeds. Needs 3 sequences. Returns InvalidArgument that names the
// problem.
absl::StatusOr<nlohmann::json> RunDrift(const DriftOptions& options);

// Returns a Markdown table of the result of RunDrift.
std::string DriftToMarkdown(const nlohmann::json& rows);

}  // namespace sluice::loadtest
