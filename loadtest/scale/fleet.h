// A fleet of replicas under a day's load, of a fixed size or autoscaled.
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
  int replicas = 1;                      // at the beginning
  std::optional<AutoscalerRule> rule{};  // none: they stay
  double startup_seconds = 30;           // from the decision until a replica is ready
  double drain_delay_seconds = 10;       // that one that goes stays at least
  double scrape_seconds = 15;            // of Prometheus
  double sync_seconds = 15;              // of the autoscaler
  double bin_seconds = 300;              // of the result
  uint64_t seed = 1;                     // of the balancer
  double objective_seconds = 1;
  BatchOptions batch{};  // packed; max_batch_tokens must be set and hold every sequence
  StepCosts costs{};
};

struct FleetBin {
  double begin_seconds = 0;
  int64_t arrivals = 0;
  double p50_seconds = 0, p99_seconds = 0;  // of those that arrived in it; 0 when none did
  double replicas = 0;    // that are paid for, on average: starting ones and ending ones too
  double busy_share = 0;  // of those
};

struct FleetResult {
  std::vector<FleetBin> bins;
  double p50_seconds = 0, p99_seconds = 0;
  double share_within = 0;  // of all sequences, within the objective
  double replica_hours = 0;
  int least = 0, most = 0;  // replicas wanted
  int changes = 0;
};

// Every sequence ends; nobody is refused. A new sequence goes to the one of two random replicas
// with fewer calls, as Envoy's LEAST_REQUEST has it. Of those that go, the ones that do not serve
// yet go first, then the youngest. `arrivals` ascend in time, from zero. Deterministic.
// InvalidArgument names what is wrong.
absl::StatusOr<FleetResult> RunFleet(std::span<const Arrival> arrivals,
                                     const FleetOptions& options);

}  // namespace sluice::loadtest
