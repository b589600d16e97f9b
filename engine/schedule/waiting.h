// Decides whether to hold back a batch that could run.
#pragma once

#include <span>

#include "base/clock.h"
#include "engine/schedule/batch_former.h"

namespace sluice {

// Returns the latest start of `batch` at which all its sequences end within their deadlines if it
// takes `cost` seconds; as much time again is kept in reserve, since estimates err.
MonoTime LastStart(std::span<WaitingSequence* const> batch, double cost);

// Returns whether it saves latency to wait for the next arrival before launching `batch`, which is
// everything that waits, as `launch` decides. With n sequences in the batch, the costs c0 of the
// batch, c1 of the next arrival alone and c2 of both in one step, and t the mean time between
// arrivals, joining saves the newcomer
//   c0 + c1 - c2 - t       (a launch now makes it wait for c0 less what has passed, then takes c1)
// and costs each of the n sequences
//   t + c2 - c0,
// so waiting pays while the first is larger than n times the second. That is so for small requests
// at a high rate, whose steps cost little more than a step's fixed part. Returns false if the next
// arrival would not fit.
bool WorthWaiting(std::span<WaitingSequence* const> batch, const BatchDecision& launch,
                  const FormerInputs& inputs);

}  // namespace sluice
