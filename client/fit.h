// Fits a ladder to recorded or sample lengths, with the daemon's own code for adapting ladders, and
// compares it with every other strategy.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/arguments.h"
#include "engine/engine_stats.h"
#include "engine/schedule/cost_model.h"
#include "engine/schedule/traffic.h"

namespace sluice::client {

// Arrivals, and the cost and size of the steps that serve them.
struct FitInput {
  std::vector<Arrival> arrivals;  // ascending in time
  CostModel law;
  int32_t max_sequences = 1;  // of a step
};

// Returns arrivals of these lengths at random times (Poisson, with a fixed seed). Their load is the
// share `load` of the throughput at full batches. Lengths are repeated up to a minimum number, and
// thinned evenly if there are very many. Requires lengths in [1, max_batch_tokens].
FitInput InputOf(std::span<const int32_t> lengths, const FitArguments& arguments);

// Reads the arrivals of the trace or the journal that the arguments name. A journal also provides
// the costs and the most sequences of its steps, unless others were given. The arrivals keep their
// recorded times; if a load is given, the times are scaled to it. Returns InvalidArgument that
// names the file and the problem.
absl::StatusOr<FitInput> ReadInput(const FitArguments& arguments);

struct FitReport {
  std::string assumed;  // sentences that name the costs and the device of the simulation
  StrategyTrials trials;
  // The trial of the requested strategy, or of the best one if that is better by more than chance.
  std::string taken;
};

// Tries all strategies. Returns FailedPrecondition if there are too few arrivals.
absl::StatusOr<FitReport> Fit(const FitInput& input, const FitArguments& arguments);

// Returns the report as YAML comments, then the options of engine.ladder and engine.batch that
// produce the ladder. If the ladder is free, there are no options of engine.ladder. Requires that
// `taken` names a trial.
std::string FitText(const FitReport& report, const FitArguments& arguments);

// Returns the report as JSON, with the keys of `sluice ladder try --json` for the trials, and the
// options of engine.ladder and engine.batch that produce the ladder.
nlohmann::json FitJson(const FitReport& report, const FitArguments& arguments);

}  // namespace sluice::client
