// All that scheduling decides from, and every operation that changes it. The daemon, the simulator,
// the reviews' replay of recent arrivals and the journal's replay drive this one class.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "engine/ladder/ladder.h"
#include "engine/schedule/batch_former.h"
#include "engine/schedule/cost_model.h"
#include "engine/schedule/queue.h"
#include "engine/schedule/step_shape.h"
#include "engine/schedule/traffic.h"

namespace sluice {

// What a decision is made at.
struct DecisionTime {
  MonoTime now{};
  bool draining = false;  // see FormerInputs
  // The device is busy with a step none of whose sequences returns. Only a batch is launched that waiting
  // for its end would not fill better.
  bool ahead = false;
  int32_t available_pages = std::numeric_limits<int32_t>::max();
};

// Sees every operation of a Scheduler in order, before its effect; enough to repeat them. Called
// wherever the scheduler is, so it must be quick.
class SchedulerObserver {
 public:
  virtual ~SchedulerObserver() = default;
  virtual void OnPush(const WaitingSequence& sequence, bool arrival) = 0;
  virtual void OnRemove(const WaitingSequence& sequence) = 0;
  virtual void OnRevise(const WaitingSequence& sequence, const SequenceQueue::NextStep& next) = 0;
  // `batch` is empty when the decision is to wait.
  virtual void OnDecide(const DecisionTime& at, const BatchDecision& decision,
                        std::span<WaitingSequence* const> batch) = 0;
  virtual void OnObserve(const StepShape& step, double seconds) = 0;
  virtual void OnLadder(const Ladder& ladder) = 0;
};

// Pure state: no clock, lock or thread. Not thread-safe.
class Scheduler {
 public:
  // `observer` may be nullptr and outlives the scheduler; it is told of `ladder` (OnLadder) at once.
  Scheduler(const BatchOptions& options, nanoseconds half_life,
            std::shared_ptr<const Ladder> ladder, CostModel costs, SchedulerObserver* observer);

  // A new sequence; counts as an arrival.
  void Arrive(WaitingSequence* sequence);
  // One that comes back for its next step.
  void Return(WaitingSequence* sequence);
  // Cancelled or expired while it waited.
  void Remove(const WaitingSequence* sequence);

  // A waiting one whose next step is another one: it begins with more of a cached prefix, or with
  // less, or was preempted.
  void Revise(WaitingSequence* sequence, const SequenceQueue::NextStep& next);

  // Who must give its KV pages up before a decision, because the running sequences' next steps take
  // more than there are: the last of them in the queue's order, so that the first one always goes on.
  // nullptr: nobody. Revise it, and ask again.
  WaitingSequence* MustYield(int32_t available_pages) const;

  // What to run next on the device. When launching, `batch` has been taken off the queue. Nobody
  // must yield.
  BatchDecision Decide(const DecisionTime& at, std::vector<WaitingSequence*>* batch);

  // A step ended.
  void Observe(const StepShape& step, double seconds);

  // From the next decision on. The same layout and largest bucket as before (CHECK).
  void SetLadder(std::shared_ptr<const Ladder> ladder);

  const SequenceQueue& queue() const { return queue_; }
  const std::shared_ptr<const Ladder>& ladder() const { return ladder_; }
  const CostModel& costs() const { return costs_; }
  const Traffic& traffic() const { return traffic_; }

 private:
  SequenceQueue queue_;
  const std::unique_ptr<BatchFormer> former_;
  std::shared_ptr<const Ladder> ladder_;
  CostModel costs_;
  Traffic traffic_;
  SchedulerObserver* const observer_;
};

}  // namespace sluice
