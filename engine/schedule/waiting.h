// Decides whether to delay a batch that could run.
#pragma once

#include <span>

#include "base/clock.h"
#include "engine/schedule/batch_former.h"

namespace sluice {

// Returns the latest start of `batch` at which all of its sequences end within their deadlines, if
// it takes `cost` seconds. The same time again is reserved, because estimates have errors.
MonoTime LastStart(std::span<WaitingSequence* const> batch, double cost);

// Returns whether waiting for the next arrival before launching `batch` reduces latency. `batch`
// contains all waiting sequences, as decided by `launch`. Let n be the number of sequences in the
// batch, c0 the cost of the batch, c1 the cost of the next arrival by itself, c2 the cost of both
// in one step, and t the mean time between arrivals. Joining the batch saves the new arrival
//   c0 + c1 - c2 - t       (after a launch now, it waits for the rest of c0, then takes c1)
// and costs each of the n sequences
//   t + c2 - c0,
// so waiting is better if the first value is larger than n times the second. This is the case for
// small requests at a high rate, where the fixed part dominates the cost of a step. Returns false
// if the next arrival would not fit.
bool WorthWaiting(std::span<WaitingSequence* const> batch, const BatchDecision& launch,
                  const FormerInputs& inputs);

}  // namespace sluice
