// How many replicas bear a recorded load.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/ladder/ladder.h"
#include "engine/options.h"
#include "engine/schedule/traffic.h"
#include "loadtest/simulate/experiment.h"

namespace sluice::loadtest {

struct SizingOptions {
  // At least this share of the sequences must end, in time for their own deadlines, within so long.
  double objective_seconds = 0.1;
  double share = 0.99;
  // The arrivals come this many times as fast as they were recorded. > 0.
  double growth = 1;
  int max_replicas = 256;
  uint64_t seed = 1;       // of the split over the replicas
  bool recompute = false;  // see VirtualRunOptions
  LadderOptions ladder{};  // kAdaptive: fitted to the lengths of the arrivals
  BatchOptions batch{};    // packed; max_batch_tokens must be set and hold every sequence
  int32_t tile_tokens = 32;
  StepCosts costs{};
};

// So many replicas under the load.
struct SizingRow {
  int replicas = 0;
  double p50_seconds = 0, p99_seconds = 0;  // of those that ran
  double utilisation = 0;                   // share of the replicas' time in steps
  double padding_efficiency = 0;
  double share_within = 0;  // of all sequences, within the objective and their deadline
  bool meets = false;
};

struct Sizing {
  std::vector<SizingRow> rows;  // those tried, by ascending count
  int replicas = 0;             // the fewest that meet the objective; 0: not even max_replicas
  double bears = 0;             // growth up to which these meet it, within about 2%
  Ladder ladder;
};

// Splits the arrivals at random over one replica, two, and so on, as a balancer would that knows
// nothing, and runs the scheduler of each on virtual time, until the objective is met. `arrivals`
// ascend in time. Deterministic. InvalidArgument names what is wrong.
absl::StatusOr<Sizing> SizeReplicas(std::span<const Arrival> arrivals,
                                    const SizingOptions& options);

}  // namespace sluice::loadtest
