// The state for scheduling decisions, and every operation that changes it. The daemon, the
// simulator, reviews (which replay recent arrivals) and the replay of a journal all use this class.
//
//   Scheduler scheduler(options.batch, half_life, ladder, costs, /*observer=*/nullptr);
//   scheduler.Arrive(&sequence);
//   std::vector<WaitingSequence*> batch;
//   const BatchDecision decision = scheduler.Decide({.now = now}, &batch);
//   if (decision.launch) {
//     // Run `batch` in a plan for decision.bucket, then:
//     scheduler.Observe(ShapeOf(batch, decision.bucket), seconds);
//   }
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "engine/ladder/ladder.h"
#include "engine/schedule/batch_former.h"
#include "engine/schedule/cost_model.h"
#include "engine/schedule/fair_order.h"
#include "engine/schedule/queue.h"
#include "engine/schedule/step_shape.h"
#include "engine/schedule/traffic.h"

namespace sluice {

// The circumstances of a decision.
struct DecisionTime {
  MonoTime now{};
  bool draining = false;  // see FormerInputs
  // Whether the device is busy with a step, and all of its returning sequences are in the queue. A
  // batch without sequences in progress is then launched only if it is full, because it may become
  // fuller until the end of that step.
  bool ahead = false;
  int32_t available_pages = std::numeric_limits<int32_t>::max();
};

// Observes every operation of a Scheduler in order, before its effect. The calls are sufficient to
// repeat the run. They are made by the scheduler's callers, under their locks, so they must be
// quick. The default methods do nothing.
class SchedulerObserver {
 public:
  virtual ~SchedulerObserver() = default;
  virtual void OnPush(const WaitingSequence& sequence, bool arrival) {}
  virtual void OnRemove(const WaitingSequence& sequence) {}
  virtual void OnRevise(const WaitingSequence& sequence, const NextStep& next) {}
  // `batch` is empty if the decision is to wait.
  virtual void OnDecide(const DecisionTime& at, const BatchDecision& decision,
                        std::span<WaitingSequence* const> batch) {}
  virtual void OnObserve(const StepShape& step, double seconds) {}
  virtual void OnLadder(const Ladder& ladder) {}
};

// A state machine without clock, lock or thread. Not thread-safe.
class Scheduler {
 public:
  // `observer` may be nullptr and must outlive the scheduler. OnLadder is called for `ladder`
  // immediately.
  Scheduler(const BatchOptions& options, nanoseconds half_life,
            std::shared_ptr<const Ladder> ladder, CostModel costs, SchedulerObserver* observer);

  // Queues a new sequence, counts it as an arrival, and sets its `deferred`.
  void Arrive(WaitingSequence* sequence);
  // Queues a sequence that returns for its next step.
  void Return(WaitingSequence* sequence);
  // Removes a sequence that was cancelled or expired while it waited.
  void Remove(const WaitingSequence* sequence);

  // Replaces the next step of a waiting sequence, because it begins with a longer or shorter cached
  // prefix, or was preempted.
  void Revise(WaitingSequence* sequence, const NextStep& next);

  // Returns the sequence that must release its KV pages before a decision, or nullptr. There is one
  // if the next steps of the running sequences need more pages than there are: the last of them in
  // queue order, so that the first always continues. The caller revises the sequence and calls
  // again.
  WaitingSequence* MustYield(int32_t available_pages) const;

  // Decides what to run next on the device. If it decides to launch, the sequences in `batch` have
  // left the queue. Requires that MustYield returns nullptr.
  BatchDecision Decide(const DecisionTime& at, std::vector<WaitingSequence*>* batch);

  // Learns the duration of a step.
  void Observe(const StepShape& step, double seconds);

  // Replaces the ladder from the next decision on. Requires the same layout and largest bucket as
  // before (CHECK).
  void SetLadder(std::shared_ptr<const Ladder> ladder);

  // Returns the total of the prompts that are ahead of a new sequence of this caller (see
  // WaitingSequence) and level.
  DueTotals::Total PromptsAhead(uint32_t caller, int priority, MonoTime now) const {
    return queue_.PromptsAhead(fair_order_.PlaceOf(caller, priority, now, queue_.empty()),
                               priority);
  }
  // Returns about how long the device is occupied by steps of these tokens, in full batches.
  nanoseconds ServiceOf(int64_t tokens) const;

  const SequenceQueue& queue() const { return queue_; }
  const std::shared_ptr<const Ladder>& ladder() const { return ladder_; }
  const CostModel& costs() const { return costs_; }
  const Traffic& traffic() const { return traffic_; }

 private:
  SequenceQueue queue_;
  FairOrder fair_order_;
  const std::unique_ptr<BatchFormer> former_;
  std::shared_ptr<const Ladder> ladder_;
  CostModel costs_;
  Traffic traffic_;
  SchedulerObserver* const observer_;
};

}  // namespace sluice
