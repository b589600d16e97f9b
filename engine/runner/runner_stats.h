// The statistics of a runner.
#pragma once

#include "base/clock.h"
#include "engine/engine_stats.h"
#include "engine/runner/runner_state.h"
#include "engine/runner/warm_up.h"

namespace sluice {

// Returns a view of the runner at `now`, without model and ladder_changes. Takes the plan cache's
// lock, then the state's.
ModelStats StatsOf(const PreparedModel& prepared, const RunnerState& state, MonoTime now);

}  // namespace sluice
