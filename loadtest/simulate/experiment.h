// Runs the scheduler on virtual time and measures it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/ladder/ladder.h"
#include "engine/options.h"
#include "engine/schedule/carried_costs.h"
#include "engine/schedule/traffic.h"

namespace sluice::loadtest {

// The duration of a step: base + per_bucket_token * the rows that the device computes for its
// bucket + per_computed_token * the tokens of the batch + per_adapter * its distinct adapters, or
// the duration by `measured` if that is set.
struct StepCosts {
  ComputedRows rows = ComputedRows::OfBucket();  // of the device
  double base_seconds = 60e-6;
  double seconds_per_bucket_token = 0.04e-6;
  double seconds_per_computed_token = 0;
  double seconds_per_adapter = 0;
  std::optional<CarriedCosts> measured{};

  static StepCosts Measured(const CostModel& costs) {
    return {.rows = costs.rows(), .measured = CarriedCosts(costs)};
  }

  // Returns the expected duration.
  double operator()(const StepShape& step) const;
};

struct ExperimentOptions {
  LadderOptions ladder{};
  BatchOptions batch{.max_batch_sequences = 256};        // max_batch_tokens must be set
  int32_t max_positions = 8192;                          // of padded ladders
  ComputedRows assumed_rows = ComputedRows::OfBucket();  // by the ladder and the cost model
  StepCosts costs{};
  // An adaptive ladder is reviewed every `review_interval` of virtual time during the first part,
  // and once more at its end, without conditions. If true, it is also reviewed in the second part.
  bool review_second = false;
  // Lets the ladder settle on the second part itself, to see how good a ladder could be: as the
  // reviews fit it, or after a further search for a better one (see SearchLadder).
  enum class Foresight { kNone, kFitted, kSearched } foresight = Foresight::kNone;
  nanoseconds review_interval{50'000'000};
  double capture_seconds = 0;  // of one plan, for the cost of a ladder change
  std::string fixed_set{};     // replaces the options' ladder; see FixedSetOf

  // Returns the throughput of endless full batches without their fixed cost, which is load 1.
  double FullTokensPerSecond() const;
};

struct Measurement {
  double bucket_fill = 0;
  double executed_efficiency = 0;
  double tokens_per_second = 0;  // of the sequences that ended in time
  double busy_share = 0;         // the share of time that the device is busy
  double mean_seconds = 0, p50_seconds = 0, p99_seconds = 0;  // latency of the sequences that ran
  int64_t sequences = 0, expired = 0, late = 0, batches = 0;
  int64_t captures = 0;         // plans prepared for the initial ladder and for changes
  int64_t changes = 0;          // of the ladder
  int64_t plans = 0;            // of the ladder at the end
  double planned_share = 0;     // share of the batches that ran in a plan
  std::vector<int32_t> ladder;  // capacities in tokens at the end; empty for a fixed set
};

// Returns the first value of `sorted`, which ascends, that more than `share` of the values do not
// exceed, or 0 if there are none. If the rank is a whole number, that is one value later than
// sluice::Quantile. The figures are compared with reports that use this definition.
double Quantile(const std::vector<double>& sorted, double share);

// Runs `first` to let an adaptive ladder settle, then measures `second` on the same scheduler. Both
// ascend in time and may start at any time. Returns InvalidArgument that names the problem with the
// options.
absl::StatusOr<Measurement> RunExperiment(const ExperimentOptions& options,
                                          std::span<const Arrival> first,
                                          std::span<const Arrival> second);

// Measures the phases one after the other on one scheduler. If its ladder is adaptive, it is always
// reviewed. Captures and changes are counted per phase; the captures of the initial ladder count
// for the first. Phases are like the parts of RunExperiment, each later than the previous one.
absl::StatusOr<std::vector<Measurement>> RunPhases(const ExperimentOptions& options,
                                                   std::span<const std::vector<Arrival>> phases);

}  // namespace sluice::loadtest
