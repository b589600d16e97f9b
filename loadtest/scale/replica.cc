#include "loadtest/scale/replica.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace sluice::loadtest {

Replica::Replica(const ReplicaModel* model)
    : model_(*model),
      scheduler_(model->batch, std::chrono::hours(1), model->ladder, model->warm, nullptr) {}

void Replica::RunUntil(MonoTime time) {
  while (next_ <= time) {
    now_ = next_;
    if (Running()) EndStep();
    Decide();
  }
  now_ = std::max(now_, time);
}

void Replica::Arrive(int32_t tokens) {
  WaitingSequence& sequence = sequences_[++last_ticket_];
  sequence.ticket = last_ticket_;
  sequence.tokens = tokens;
  sequence.queued = now_;
  tokens_ += tokens;
  scheduler_.Arrive(&sequence);
  if (!Running()) Decide();
}

void Replica::Decide() {
  const BatchDecision decision = scheduler_.Decide({.now = now_}, &batch_);
  if (!decision.launch) {
    next_ = decision.wait_until;
    return;
  }
  shape_ = ShapeOf(batch_, decision.bucket);
  begin_ = now_;
  const double seconds = model_.costs(shape_);
  next_ = now_ + nanoseconds(std::max<int64_t>(std::llround(seconds * 1e9), 1));
}

void Replica::EndStep() {
  busy_ += now_ - begin_;
  scheduler_.Observe(shape_, Seconds(now_ - begin_));
  for (const WaitingSequence* sequence : batch_) {
    if (model_.on_done) model_.on_done(sequence->queued, now_);
    tokens_ -= sequence->tokens;
    sequences_.erase(sequence->ticket);
  }
  batch_.clear();
}

double Replica::DrainSeconds() const {
  return scheduler_.costs().EstimateDrain(tokens_, model_.ladder->largest());
}

double Replica::BusySeconds() const {
  return Seconds(busy_ + (Running() ? now_ - begin_ : nanoseconds(0)));
}

}  // namespace sluice::loadtest
