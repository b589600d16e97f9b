// Shows strategies side by side and recommends one. The functions are pure.
#pragma once

#include <string>

#include "engine/engine_stats.h"
#include "proto/admin.pb.h"

namespace sluice::client {

// Converts a server's answer to the engine's type.
StrategyTrials TrialsOf(const admin::v1::TryStrategiesResponse& response);

// Returns the trial that StrategyTrials::best names. Requires that it exists.
const StrategyTrial& BestOf(const StrategyTrials& trials);

// Returns a table with a line for each trial.
std::string TrialsTable(const StrategyTrials& trials);

// Returns sentences that recommend a ladder and give the reason: the best one by these figures, or
// the first if no other gains more than chance. Also notes when bucketing gains nothing over a
// single bucket.
std::string VerdictText(const StrategyTrials& trials);

// Returns the choice as flags of sluice ladder set.
std::string ChoiceFlags(const LadderChoice& choice);

}  // namespace sluice::client
