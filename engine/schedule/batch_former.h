// The decision what to run next, and when.
#pragma once

#include <cstdint>
#include <span>

#include "engine/backend.h"
#include "engine/clock.h"
#include "engine/observer.h"
#include "engine/schedule/cost_model.h"
#include "engine/schedule/ladder.h"
#include "engine/schedule/queue.h"

namespace sluice {

struct BatchDecision {
  int32_t sequences = 0;  // launch this many from the front; 0: wait
  // When launching.
  int32_t tokens = 0;
  Bucket bucket{};
  Trigger trigger = Trigger::kIdle;
  // When waiting: decide again at this time, or earlier if something arrives.
  MonoTime wait_until = MonoTime::max();
};

struct BatchPolicy {
  nanoseconds max_queue_delay{0};
  bool draining = false;  // nothing more will arrive
};

// Decides for a free device. A pure function of its arguments.
//
// Takes the longest prefix of `waiting` that the ladder's largest bucket holds. It launches when
// nothing more fits or will come; otherwise it holds the batch back until one of its sequences has
// waited max_queue_delay, or may miss its deadline by waiting on.
//
// `waiting` is in the queue's order: all that waits, or at least as many sequences as the largest
// bucket holds. Each fits the largest bucket (CHECK for the first).
BatchDecision FormBatch(std::span<const WaitingSequence* const> waiting, const Ladder& ladder,
                        const CostModel& costs, const BatchPolicy& policy, MonoTime now);

}  // namespace sluice
