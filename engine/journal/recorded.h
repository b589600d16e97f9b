// Reads recorded arrivals for sizing, from a trace or from a journal of the daemon.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/options.h"
#include "engine/schedule/cost_model.h"
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
  bool recompute = false;         // whether further steps compute the whole prefix
  BatchOptions batch;
  int32_t max_tokens = 0;  // the tokens of the largest bucket
  CostModel costs;         // as learned by the end of the run
};
// Returns the reader's errors, and InvalidArgument if nothing arrived.
absl::StatusOr<RecordedRun> ReadJournalRun(const std::string& path);

}  // namespace sluice
