// Simulates a fleet of replicas under a day's load, of a fixed size or autoscaled.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/options.h"
#include "engine/schedule/traffic.h"
#include "loadtest/scale/autoscaler.h"
#include "loadtest/simulate/experiment.h"

namespace sluice::loadtest {

struct FleetOptions {
  int replicas = 1;                      // the number at the start
  std::optional<AutoscalerRule> rule{};  // without a rule the number of replicas is fixed
  double startup_seconds = 30;           // from the decision until a replica is ready
  double drain_delay_seconds = 10;       // the shortest time from removal to end
  double scrape_seconds = 15;            // the interval of Prometheus
  double sync_seconds = 15;              // the interval of the autoscaler
  double bin_seconds = 300;              // the width of a bin of the result
  uint64_t seed = 1;                     // seed of the balancer
  double objective_seconds = 1;
  // Packed; max_batch_tokens must be set and hold every sequence.
  BatchOptions batch{.max_batch_sequences = 256};
  StepCosts costs{};
};

struct FleetBin {
  double begin_seconds = 0;
  int64_t arrivals = 0;
  double p50_seconds = 0, p99_seconds = 0;  // of the sequences that arrived in it; or 0
  double replicas = 0;    // the mean number of paid replicas, including starting and ending ones
  double busy_share = 0;  // the share of their time in steps
};

struct FleetResult {
  std::vector<FleetBin> bins;
  double p50_seconds = 0, p99_seconds = 0;
  double share_within = 0;  // share of all sequences within the objective
  double replica_hours = 0;
  int least = 0, most = 0;  // of the requested number of replicas
  int changes = 0;
};

// Runs the fleet until every sequence has ended; no sequence is refused. For a new sequence, two
// replicas are drawn at random and the one with fewer calls gets it, like Envoy's LEAST_REQUEST.
// Replicas that do not serve yet are removed first, then the youngest. Requires that `arrivals`
// ascend in time, from zero. The result is deterministic. Returns InvalidArgument that names the
// problem.
absl::StatusOr<FleetResult> RunFleet(std::span<const Arrival> arrivals,
                                     const FleetOptions& options);

}  // namespace sluice::loadtest
