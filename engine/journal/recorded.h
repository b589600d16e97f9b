// Reads recorded arrivals for sizing, from a trace or from a journal of the daemon.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/journal/machine_pace.h"
#include "engine/ladder/ladder.h"
#include "engine/options.h"
#include "engine/schedule/cost_model.h"
#include "engine/schedule/host_times.h"
#include "engine/schedule/traffic.h"

namespace sluice {

// Returns the arrivals of a trace at their recorded times. Inputs are cut to `cap` tokens. Without
// `generate`, a sequence has one step. With `generate`, it has one step per output token (at least
// one), but at most cap - input tokens + 1. Returns the system's error if the file cannot be read,
// or InvalidArgument with the file and the problem if it is not a valid trace.
absl::StatusOr<std::vector<Arrival>> ReadTraceArrivals(const std::string& path, int32_t cap,
                                                       bool generate);

// The last run in a journal that has arrivals.
struct RecordedRun {
  std::vector<Arrival> arrivals;  // ascending in time
  // The end of the last step of each arrival; MonoTime::max() if no step of it ended. Exact for
  // devices that run one step at a time.
  std::vector<MonoTime> ends;
  bool recompute = false;  // whether later steps compute the whole prefix again
  BatchOptions batch;
  nanoseconds half_life{0};      // of the traffic
  std::optional<Ladder> ladder;  // the last one of the run; set if there is a max_tokens
  int32_t max_tokens = 0;        // the tokens of the largest bucket
  CostModel first_costs;         // the scheduler's costs when the run began
  // The costs at the end of the run, corrected over the whole run: for each bucket, the sum of the
  // estimates equals the sum of the measured times.
  CostModel costs;
  HostTimes host;  // wake and turnaround only from steps that were not started ahead
  MachinePace pace;
  int64_t steps = 0;
  double step_seconds = 0;  // total time of all steps
  int64_t runs = 0;         // of the journal that have arrivals, including this one
};
// Returns the reader's errors, and InvalidArgument if nothing arrived.
absl::StatusOr<RecordedRun> ReadJournalRun(const std::string& path);

}  // namespace sluice
