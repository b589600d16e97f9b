#include "engine/schedule/scheduler.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace sluice {
namespace {

// The cost of a token while it is unknown. Fair shares only depend on ratios.
constexpr double kFirstSecondsOfToken = 1e-6;
constexpr double kMaxSecondsOfService = 3600;

}  // namespace

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
                      .tokens = sequence->tokens + sequence->later_tokens,
                      .steps = sequence->expected_steps,
                      .priority = sequence->priority,
                      .caller = sequence->caller,
                      .adapter = sequence->adapter,
                      .deadline = sequence->deadline});
  if (sequence->caller != 0) {
    const int64_t tokens =
        int64_t{sequence->tokens} + sequence->later_tokens + sequence->expected_steps - 1;
    fair_order_.Arrive(ServiceOf(tokens), queue_.empty(), sequence);
  }
  queue_.Push(sequence);
}

nanoseconds Scheduler::ServiceOf(int64_t tokens) const {
  const Bucket& largest = ladder_->largest();
  const double full = costs_.EstimateDrain(largest.tokens, largest);
  const double of_token = full > 0 ? full / largest.tokens : kFirstSecondsOfToken;
  const double seconds = std::min(of_token * static_cast<double>(tokens), kMaxSecondsOfService);
  return nanoseconds(std::llround(1e9 * seconds));
}

void Scheduler::Return(WaitingSequence* sequence) {
  if (observer_ != nullptr) observer_->OnPush(*sequence, false);
  queue_.Push(sequence);
}

void Scheduler::Remove(const WaitingSequence* sequence) {
  if (observer_ != nullptr) observer_->OnRemove(*sequence);
  queue_.Remove(sequence);
}

void Scheduler::Revise(WaitingSequence* sequence, const NextStep& next) {
  if (observer_ != nullptr) observer_->OnRevise(*sequence, next);
  queue_.Revise(sequence, next);
}

WaitingSequence* Scheduler::MustYield(int32_t available_pages) const {
  return queue_.running_pages() > available_pages ? queue_.LastRunning() : nullptr;
}

BatchDecision Scheduler::Decide(const DecisionTime& at, std::vector<WaitingSequence*>* batch) {
  SLUICE_CHECK(MustYield(at.available_pages) == nullptr);
  const FormerInputs inputs{.ladder = ladder_.get(),
                            .costs = &costs_,
                            .arrivals = traffic_.Rate(at.now),
                            .draining = at.draining,
                            .available_pages = at.available_pages};
  BatchDecision decision = former_->Form(queue_, inputs, at.now, batch);
  const bool may_fill = decision.trigger != Trigger::kFull && queue_.running() == 0;
  if (at.ahead && decision.launch && may_fill) {
    batch->clear();
    decision = {};
  }
  if (observer_ != nullptr) observer_->OnDecide(at, decision, *batch);
  if (decision.launch) {
    queue_.Take(*batch);
    const auto begins = [](const WaitingSequence* sequence) { return !sequence->running; };
    const auto first = std::find_if(batch->begin(), batch->end(), begins);
    if (first != batch->end()) fair_order_.Take(**first);
    traffic_.OnBatch(decision.size, at.now);
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
