// How good a ladder could be, had one known the arrivals.
#pragma once

#include <span>

#include "engine/ladder/ladder.h"
#include "engine/options.h"
#include "engine/schedule/cost_model.h"
#include "engine/schedule/traffic.h"

namespace sluice::loadtest {

// Moves one capacity of `start` at a time, by ever smaller steps, as long as the padding efficiency
// on these very arrivals grows. As many buckets as `start`, and the same largest. A local optimum,
// and no bound in the strict sense; runs the batch former some hundreds of times over all the
// arrivals.
Ladder SearchLadder(const Ladder& start, std::span<const Arrival> arrivals,
                    const BatchOptions& batch_options, const CostModel& law,
                    const LadderLimits& limits);

}  // namespace sluice::loadtest
