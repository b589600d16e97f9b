// One run of the scheduler on virtual time, measured.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/ladder/ladder.h"
#include "engine/options.h"
#include "engine/schedule/cost_model.h"
#include "engine/schedule/traffic.h"

namespace sluice::loadtest {

// What a step takes: base + per_bucket_token * bucket tokens + per_computed_token * computed
// tokens, or what `measured` says if it has anything.
struct StepCosts {
  double base_seconds = 60e-6;
  double seconds_per_bucket_token = 0.04e-6;
  double seconds_per_computed_token = 0;
  CostModel measured{};
  bool use_measured = false;

  double operator()(const StepShape& step) const;
};

struct ExperimentOptions {
  LadderOptions ladder{};
  BatchOptions batch{};          // max_batch_tokens must be set
  int32_t max_positions = 8192;  // of padded ladders
  int32_t tile_tokens = 32;
  StepCosts costs{};
  // kAdaptive: reviewed every review_interval of virtual time during the first part and, forced, at
  // its end; during the second part as well?
  bool review_second = false;
  // Settles on the second part itself, to see how good a ladder could be: as the reviews fit it, or
  // with a search for a better one after them (see SearchLadder).
  enum class Foresight { kNone, kFitted, kSearched } foresight = Foresight::kNone;
  nanoseconds review_interval{50'000'000};
  double capture_seconds = 0;  // of a plan, for the price of a change

  // Of endless full batches without their fixed cost: load 1.
  double FullTokensPerSecond() const;
};

struct Measurement {
  double padding_efficiency = 0;
  double executed_efficiency = 0;
  double tokens_per_second = 0;                               // that ended in time
  double busy_share = 0;                                      // of the device's time
  double mean_seconds = 0, p50_seconds = 0, p99_seconds = 0;  // latency of those that ran
  int64_t sequences = 0, expired = 0, late = 0, batches = 0;
  int64_t captures = 0;         // plans prepared: the initial ladder's and those of changes
  int64_t changes = 0;          // of the ladder
  std::vector<int32_t> ladder;  // capacities in tokens at the end
};

// Returns the first of `sorted`, which ascends, that more than `share` of the values do not exceed,
// or 0 if there are none. At a whole rank that is one value later than sluice::Quantile; earlier
// reports were made so, and figures are compared with theirs.
double Quantile(const std::vector<double>& sorted, double share);

// Runs `first` to let an adaptive ladder settle, then measures `second` on the same scheduler. Both
// ascend in time from any beginning. InvalidArgument names what is wrong with the options.
absl::StatusOr<Measurement> RunExperiment(const ExperimentOptions& options,
                                          std::span<const Arrival> first,
                                          std::span<const Arrival> second);

// Measures each of the phases, one after the other on one scheduler, whose ladder is reviewed all
// the time if it is adaptive. Captures and changes are those of the phase; the initial ladder's
// count for the first. Phases are as the parts of RunExperiment, each later than the one before it.
absl::StatusOr<std::vector<Measurement>> RunPhases(const ExperimentOptions& options,
                                                   std::span<const std::vector<Arrival>> phases);

}  // namespace sluice::loadtest
