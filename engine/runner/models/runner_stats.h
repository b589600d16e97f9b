// The statistics of a runner.
#pragma once

#include "base/clock.h"
#include "engine/engine_stats.h"
#include "engine/runner/models/warm_up.h"
#include "engine/runner/requests/runner_state.h"

namespace sluice {

// Returns a view of the runner at `now`, without model and ladder_changes. Takes the plan cache's
// lock, then the state's.
ModelStats StatsOf(const PreparedModel& prepared, const RunnerState& state, MonoTime now);

}  // namespace sluice
