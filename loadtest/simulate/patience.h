// Measures the admission of calls that may wait for different times.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/options.h"
#include "loadtest/simulate/experiment.h"
#include "nlohmann/json.hpp"

namespace sluice::loadtest {

struct PatienceOptions {
  std::string trace;                           // a file of lengths; empty: lognormal
  std::vector<std::string> processes;          // of the arrivals: poisson, bursty
  std::vector<double> loads = {0.5, 1, 2, 4};  // of all callers together; see ComparisonOptions
  int32_t cap = 8192;                          // of a sequence's tokens
  int callers = 8;                             // each sends calls of one deadline
  double seconds = 480;                        // of arrivals
  uint64_t first_seed = 1;
  int seeds = 5;
  bool greedy = false;  // whether one caller of each deadline sends ten times as much as the others
  QueueOptions queue{};
  ExperimentOptions experiment{};  // costs, batch and ladder
};

// Half of the callers send calls with a deadline of 1 s, and half with a deadline of 60 s. Compares
// admission with and without the backlog (see AdmissionControl) on the same arrivals. The measured
// time begins after two minutes, when an overload is steady. Greedy callers are not measured.
// Returns an array with one object per process, load and rule, medians over the seeds: for each
// deadline the goodput as a share of the device, the 99th percentile of the latency of calls in
// time, the share of the calls that were refused or late, and Jain's index of fairness of the
// callers' goodputs. Returns InvalidArgument that names the problem.
absl::StatusOr<nlohmann::json> RunPatience(const PatienceOptions& options);

// Returns a Markdown table of the result of RunPatience.
std::string PatienceToMarkdown(const nlohmann::json& rows);

}  // namespace sluice::loadtest
