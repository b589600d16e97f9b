// Does the adaptive ladder follow traffic that drifts?
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "loadtest/simulate/experiment.h"
#include "nlohmann/json.hpp"

namespace sluice::loadtest {

struct DriftOptions {
  size_t count = 60'000;  // generated sequences, of Lengths::kDrifting: a third in each phase
  int32_t cap = 8192;     // of a sequence's tokens
  double load = 0.5;      // of each phase; see ComparisonOptions
  uint64_t first_seed = 1;
  int seeds = 5;
  ExperimentOptions experiment{};  // but for the policy and the strategy
};

// Runs cut and fill through the phases with one adaptive ladder, reviewed all the time, and each
// phase with a ladder that was fitted to that very phase: its optimum. An array of one object per
// phase, medians over the seeds. Needs 3 sequences. InvalidArgument names what is wrong.
absl::StatusOr<nlohmann::json> RunDrift(const DriftOptions& options);

// A Markdown table of what RunDrift returns.
std::string DriftToMarkdown(const nlohmann::json& rows);

}  // namespace sluice::loadtest
