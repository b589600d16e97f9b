// Arrivals that were recorded, for sizing: from a trace, or from what the daemon itself wrote.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/options.h"
#include "engine/schedule/cost_model.h"
#include "engine/schedule/traffic.h"

namespace sluice::loadtest {

// At their recorded times. One step each, the inputs cut to `cap`; with `generate` as many as the
// trace has output tokens, as long as the sequence stays within `cap`. InvalidArgument names the
// file and what is wrong.
absl::StatusOr<std::vector<Arrival>> ReadTraceArrivals(const std::string& path, int32_t cap,
                                                       bool generate);

// The last run of a journal in which anything arrived.
struct RecordedRun {
  std::vector<Arrival> arrivals;  // ascending in time
  bool recompute = false;         // do further steps compute the whole prefix?
  BatchOptions batch;
  int32_t max_tokens = 0;  // of the largest bucket
  CostModel costs;         // as learned by the end of it
};
// The reader's errors; InvalidArgument when nothing arrived.
absl::StatusOr<RecordedRun> ReadJournalRun(const std::string& path);

}  // namespace sluice::loadtest
