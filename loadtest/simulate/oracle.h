// Searches for the best ladder for known arrivals.
#pragma once

#include <span>

#include "engine/ladder/ladder.h"
#include "engine/options.h"
#include "engine/schedule/cost_model.h"
#include "engine/schedule/traffic.h"

namespace sluice::loadtest {

// Returns a ladder with the same number of buckets as `start` and the same largest one. Moves one
// capacity at a time, by decreasing steps, while the bucket fill on these arrivals grows.
// The result is a local optimum, not an upper bound. Runs the batch former several hundred times
// over all the arrivals.
Ladder SearchLadder(const Ladder& start, std::span<const Arrival> arrivals,
                    const BatchOptions& batch_options, const CostModel& law,
                    const LadderLimits& limits);

}  // namespace sluice::loadtest
