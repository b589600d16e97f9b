// Compares the simulator with the daemon: the same arrivals, simulated and as they were served.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "engine/journal/recorded.h"
#include "loadtest/simulate/experiment.h"
#include "nlohmann/json.hpp"

namespace sluice::loadtest {

// Latencies count from when a sequence was queued until its last step ended.
struct RunFigures {
  int64_t sequences = 0;  // that ran to their end
  double sequences_per_second = 0;
  double mean_seconds = 0, p50_seconds = 0, p99_seconds = 0;
  int64_t batches = 0;
  double busy_share = 0;  // of the time from the first arrival to the last end
};

// The times in which the measured sequences above the 99th percentile waited or ran.
struct SlowTimes {
  int64_t count = 0;  // of those that are apart from each other
  double pace = 1;    // of the machine in all of them; 1 is that of the whole run
};

struct Prediction {
  RunFigures measured, simulated;
  HostTimes host;  // that were measured, and simulated
  SlowTimes slow;
};

// Runs the recorded arrivals with the run's own options, its last ladder, the costs that its
// scheduler knew when it began, and its host's times, at the pace that the machine had at each
// time, and with steps that take what `costs` say, or, if it is null, what the run's own took.
// Returns InvalidArgument if the run has no ladder, an arrival that does not fit it, or none that
// ended.
absl::StatusOr<Prediction> Predict(const RecordedRun& run, const StepCosts* costs);

nlohmann::json PredictionToJson(const Prediction& prediction);
std::string PredictionToMarkdown(const Prediction& prediction);

}  // namespace sluice::loadtest
