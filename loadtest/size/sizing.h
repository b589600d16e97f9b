// Finds the number of replicas that can carry a recorded load.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/journal/machine_pace.h"
#include "engine/journal/recorded.h"
#include "engine/ladder/ladder.h"
#include "engine/options.h"
#include "engine/schedule/host_times.h"
#include "engine/schedule/traffic.h"
#include "loadtest/simulate/experiment.h"

namespace sluice::loadtest {

struct SizingOptions {
  // At least `share` of the sequences must end within `objective_seconds` and within their own
  // deadlines.
  double objective_seconds = 0.1;
  double share = 0.99;
  // The factor, above 0, that makes the arrivals faster than recorded.
  double growth = 1;
  // The share, 0 or more, that every step takes longer than its cost, in case the machine is slower
  // than during the recording.
  double margin = 0.1;
  int max_replicas = 256;
  uint64_t seed = 1;       // seed of the split over the replicas
  bool recompute = false;  // see VirtualRunOptions
  HostTimes host{};
  MachinePace pace{};
  LadderOptions ladder{};  // kAdaptive is fitted to the lengths of the arrivals
  // The ladder of the recorded run. It is kept if LadderMatters is false.
  std::optional<Ladder> recorded_ladder{};
  // Packed; max_batch_tokens must be set and hold every sequence.
  BatchOptions batch{.max_batch_sequences = 256};
  StepCosts costs{};
  // The estimates of a replica's scheduler at its start. By default, every bucket was timed.
  std::optional<CostModel> first_costs{};
  bool costs_assumed = false;  // neither measured nor given by the user
  bool from_journal = false;
  int64_t journal_runs = 1;  // the runs of the journal; only the last one is sized
};

// The figures of one number of replicas under the load.
struct SizingRow {
  int replicas = 0;
  double p50_seconds = 0, p99_seconds = 0;  // of the sequences that ran
  double utilisation = 0;                   // the share of the replicas' time in steps
  double bucket_fill = 0;
  double share_within = 0;  // share of all sequences within objective and deadline
  bool meets = false;
};

// The recorded load, without `growth`.
struct RecordedLoad {
  double seconds = 0;  // from the first arrival to the last
  double sequences_per_second = 0;
  double busiest_second = 0;     // the most sequences within any one second
  double tokens_per_second = 0;  // of first steps
};

struct Sizing {
  int64_t arrivals = 0;
  RecordedLoad recorded;
  std::vector<SizingRow> rows;  // the counts tried, ascending
  int replicas = 0;             // the fewest that meet the objective; 0 if max_replicas do not
  // The largest growth, within about 2%, that meets the objective and whose steps take no longer
  // than the arrivals last. Not below the required growth.
  double bears = 0;
  // Whether the arrivals last longer than the objective. If not, they do not show the load that
  // replicas can carry for long.
  bool lasts = true;
  // If one replica is not enough: the share of the sequences that meet the objective if each has an
  // idle replica, and the tokens of the longest one.
  std::optional<double> share_alone;
  int32_t longest = 0;
  Ladder ladder;
  bool ladder_is_free = false;  // LadderMatters is false: no ladder is advised
};

// Sets the options of a recorded run: its batches, ladder, host times and pace and, with
// `with_costs`, its costs.
void SetRun(const RecordedRun& run, bool with_costs, SizingOptions* options);

// Splits the arrivals at random, like a balancer without information, over one replica, then two,
// and so on. Runs the scheduler of each replica on virtual time, until the objective is met, or
// until it is clear that no number of replicas can meet it.
// Requires `arrivals` that ascend in time. The result is deterministic. Returns InvalidArgument
// that names the problem.
absl::StatusOr<Sizing> SizeReplicas(std::span<const Arrival> arrivals,
                                    const SizingOptions& options);

}  // namespace sluice::loadtest
