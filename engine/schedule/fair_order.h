// The order of arrival, corrected so that callers get equal shares of the device.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/clock.h"
#include "engine/schedule/finish_times.h"
#include "engine/schedule/queue.h"

namespace sluice {

// Start-time fair queueing (Goyal, Vin and Cheng, 1996); for sequences of different lengths it is
// like deficit round robin. The virtual arrival of a caller's sequence is the time at which the
// device would have served the caller's earlier sequences of the same level, if all callers with
// queued sequences got equal device time. A caller with nothing else queued therefore waits for at
// most one sequence of each other caller at its level, plus the sequences that share the next step.
// Sequences of unidentified callers count as they arrive. Not thread-safe.
class FairOrder {
 public:
  // Returns the time at which a new sequence of this caller and level would count as arrived.
  // `idle` is whether no other sequence waits.
  MonoTime PlaceOf(uint32_t caller, int priority, MonoTime now, bool idle) const {
    if (caller == 0) return now;
    return busy_until_.StartOf({caller, priority}, idle ? std::max(now_, now) : now_);
  }

  // Sets the place in the order of an arriving sequence that needs the device for `service`. `idle`
  // is whether no other sequence waits.
  void Arrive(nanoseconds service, bool idle, WaitingSequence* sequence) {
    if (sequence->caller == 0) return;
    if (idle) now_ = std::max(now_, sequence->queued);
    const FlowKey flow{sequence->caller, sequence->priority};
    const MonoTime start = busy_until_.StartOf(flow, now_);
    busy_until_.Set(flow, start + service, now_);
    sequence->deferred = start - sequence->queued;
  }

  // Records that a sequence begins. If several begin together, call it only for the first of them
  // in queue order.
  void Take(const WaitingSequence& sequence) {
    if (sequence.caller == 0) return;
    now_ = std::max(now_, sequence.queued + sequence.deferred);
  }

 private:
  MonoTime now_{};  // virtual: the start of the sequence that began last
  FinishTimes busy_until_;
};

}  // namespace sluice
