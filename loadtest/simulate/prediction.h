// Compares the simulator with the daemon on the same arrivals.
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
  int64_t sequences = 0;  // that ended
  double sequences_per_second = 0;
  double mean_seconds = 0, p50_seconds = 0, p99_seconds = 0;
  int64_t batches = 0;
  double busy_share = 0;  // busy time / time from the first arrival to the last end
};

// The periods in which the measured sequences above the 99th percentile waited or ran.
struct SlowTimes {
  int64_t count = 0;  // the number of separate periods
  double pace = 1;    // the machine's pace in all of them; 1 is the pace in the whole run
};

struct Prediction {
  RunFigures measured, simulated;
  HostTimes host;  // measured, and used by the simulation
  SlowTimes slow;
};

// Runs the recorded arrivals with the run's own options, its last ladder, the costs of its
// scheduler at the start, and its host's times, at the machine's pace at each time. Steps take the
// time that `costs` give or, if it is null, that the run's own steps took. Returns InvalidArgument
// if the run has no ladder, an arrival that does not fit it, or no ended sequence.
absl::StatusOr<Prediction> Predict(const RecordedRun& run, const StepCosts* costs);

nlohmann::json PredictionToJson(const Prediction& prediction);
std::string PredictionToMarkdown(const Prediction& prediction);

}  // namespace sluice::loadtest
