// The shape of a step batch, for the cost model.
#pragma once

#include <span>

#include "engine/schedule/cost_model.h"
#include "engine/schedule/queue.h"

namespace sluice {

// Returns the shape of the step that computes `batch` in `bucket`: packed, only its tokens; padded,
// all rows of the bucket.
StepShape ShapeOf(std::span<WaitingSequence* const> batch, const Bucket& bucket);

// Returns the same for decisions, in O(n) and the time to sort the sequences that have adapters.
// distinct_positions may be too large if sequences do not begin at position 0.
StepShape EstimatedShapeOf(std::span<WaitingSequence* const> batch, const Bucket& bucket);

}  // namespace sluice
