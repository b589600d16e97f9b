#include "engine/schedule/scheduler.h"

#include <chrono>
#include <utility>

#include "kernels/check.h"

namespace sluice {
Scheduler::Scheduler(const BatchOptions& options, nanoseconds half_life,
                     std::shared_ptr<const Ladder> ladder, CostModel costs,
                     SchedulerObserver* observer)
    : queue_(std::chrono::microseconds(options.priority_step_us)),
      former_(MakeBatchFormer(options)),
      ladder_(std::move(ladder)),
      costs_(std::move(costs)),
      traffic_(half_life),
      observer_(observer) {
  if (observer_ != nullptr) observer_->OnLadder(*ladder_);
}

void Scheduler::Arrive(WaitingSequence* sequence) {
  if (observer_ != nullptr) observer_->OnPush(*sequence, true);
  traffic_.OnArrival({.at = sequence->queued,
                      .tokens = sequence->tokens,
                      .priority = sequence->priority,
                      .deadline = sequence->deadline});
  queue_.Push(sequence);
}

void Scheduler::Return(WaitingSequence* sequence) {
  if (observer_ != nullptr) observer_->OnPush(*sequence, false);
  queue_.Push(sequence);
}

void Scheduler::Remove(const WaitingSequence* sequence) {
  if (observer_ != nullptr) observer_->OnRemove(*sequence);
  queue_.Remove(sequence);
}

BatchDecision Scheduler::Decide(MonoTime now, bool draining, std::vector<WaitingSequence*>* batch) {
  const FormerInputs inputs{.ladder = ladder_.get(),
                            .costs = &costs_,
                            .arrivals = traffic_.Rate(now),
                            .draining = draining};
  const BatchDecision decision = former_->Form(queue_, inputs, now, batch);
  if (observer_ != nullptr) observer_->OnDecide(now, draining, decision, *batch);
  if (decision.launch) {
    queue_.Take(*batch);
    traffic_.OnBatch(decision.size, decision.bucket, now);
  }
  return decision;
}

void Scheduler::Observe(const StepShape& step, double seconds) {
  if (observer_ != nullptr) observer_->OnObserve(step, seconds);
  costs_.Observe(step, seconds);
}

void Scheduler::SetLadder(std::shared_ptr<const Ladder> ladder) {
  SLUICE_CHECK(ladder->padded() == ladder_->padded() && ladder->largest() == ladder_->largest());
  if (observer_ != nullptr) observer_->OnLadder(*ladder);
  ladder_ = std::move(ladder);
}

}  // namespace sluice
