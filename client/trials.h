// Shows strategies that were tried side by side, and says which to take. The functions are pure.
#pragma once

#include <string>

#include "engine/engine_stats.h"
#include "proto/admin.pb.h"

namespace sluice::client {

// Returns what a server answered, as the engine has it.
StrategyTrials TrialsOf(const admin::v1::TryStrategiesResponse& response);

// Returns the trial that StrategyTrials::best names. Requires that there is one.
const StrategyTrial& BestOf(const StrategyTrials& trials);

// Returns a table with a line for each trial.
std::string TrialsTable(const StrategyTrials& trials);

// Returns which ladder to take and why, as sentences: the one that is best by these figures, or the
// first if no other gains more than chance; and that bucketing buys nothing where one bucket serves
// as well.
std::string VerdictText(const StrategyTrials& trials);

// Returns the choice as flags of sluice ladder set.
std::string ChoiceFlags(const LadderChoice& choice);

}  // namespace sluice::client
