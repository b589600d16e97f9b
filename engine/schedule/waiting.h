// Whether to hold back a batch that could run.
#pragma once

#include <span>

#include "base/clock.h"
#include "engine/schedule/batch_former.h"

namespace sluice {

// The latest start of `batch` at which all of it ends within its deadlines, when it takes `cost`
// seconds; as much again is kept, since estimates err.
MonoTime LastStart(std::span<WaitingSequence* const> batch, double cost);

// Does it save latency to wait for the next arrival before launching `batch`, all that waits, as
// `launch` says? With n sequences in the batch, the costs c0 of it, c1 of the next arrival alone and c2
// of both in one step, and t the mean time between arrivals, joining saves the newcomer
//   c0 + c1 - c2 - t       (a launch now makes it wait for c0 less what has passed, then takes c1)
// and costs each of the n
//   t + c2 - c0,
// so that waiting pays while the first is larger than n times the second: for small requests at a high
// rate, whose steps cost little more than a step's fixed part. False when it would not fit.
bool WorthWaiting(std::span<WaitingSequence* const> batch, const BatchDecision& launch,
                  const FormerInputs& inputs);

}  // namespace sluice
