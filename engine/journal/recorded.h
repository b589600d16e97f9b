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

// Returns the arrivals of a trace at their recorded times, with inputs reduced to `cap`. A sequence
// has one step, or with `generate` as many as the trace has output tokens, as long as it stays
// within `cap`. Returns InvalidArgument that names the file and the problem.
absl::StatusOr<std::vector<Arrival>> ReadTraceArrivals(const std::string& path, int32_t cap,
                                                       bool generate);

// The last run of a journal that has arrivals.
struct RecordedRun {
  std::vector<Arrival> arrivals;  // ascending in time
  // When the last step of each arrival ended, MonoTime::max() for one that no step ended. Exact for
  // devices that run a step at a time.
  std::vector<MonoTime> ends;
  bool recompute = false;  // whether further steps compute the whole prefix
  BatchOptions batch;
  nanoseconds half_life{0};      // of the traffic
  std::optional<Ladder> ladder;  // the last one of the run; set if there is a max_tokens
  int32_t max_tokens = 0;        // the tokens of the largest bucket
  CostModel first_costs;         // those that the scheduler knew when the run began
  // As learned by the end of the run, with the corrections of the whole run: the steps of each
  // bucket are estimated to take as long together as they took.
  CostModel costs;
  HostTimes host;  // none for steps that are started ahead
  MachinePace pace;
  int64_t steps = 0;
  double step_seconds = 0;  // that all steps took together
};
// Returns the reader's errors, and InvalidArgument if nothing arrived.
absl::StatusOr<RecordedRun> ReadJournalRun(const std::string& path);

}  // namespace sluice
