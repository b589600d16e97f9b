// What the scheduling thread of a ModelRunner does next.
#include <algorithm>
#include <utility>

#include "engine/model_runner.h"

namespace sluice {

void ModelRunner::Run() {
  pulse_.Busy();
  while (NextWork()) {
    if (!finished_.empty()) {
      EndFinished();
    } else if (!running_.empty()) {
      if (!RunBatch()) return;
    } else {
      plans_.Refresh();
    }
  }
}

// Waits until there are requests to end (then in finished_), a batch to run (then in running_) or
// plans to let go of; false when the runner stops. Ends come first, so that none waits for a batch.
bool ModelRunner::NextWork() {
  MutexLock lock(&mu_);
  running_.clear();
  while (true) {
    decided_ = clock_->Now();
    ExpireWaiting(decided_);
    if (!ended_.empty()) {
      finished_.swap(ended_);
      ending_ = true;
      return true;
    }
    if (Decide() || plans_.stale()) return true;
    if (stopping_) {
      pulse_.Idle();
      return false;
    }
    Sleep();
  }
}

void ModelRunner::Sleep() {
  pulse_.Idle();
  clock_->WaitUntil(&wake_, &mu_, std::min(decision_.wait_until, queue().EarliestDeadline()));
  pulse_.Busy();
}

void ModelRunner::ExpireWaiting(MonoTime now) {
  while (WaitingSequence* expired = queue().Expired(now)) {
    Fail(static_cast<Row*>(expired)->owner,
         absl::DeadlineExceededError("the deadline passed while the request waited"));
  }
}

bool ModelRunner::Decide() {
  if (queue().empty()) {
    decision_ = {};
    return false;
  }
  decision_ = scheduler_.Decide(decided_, draining_, &batch_);
  if (decision_.launch) {
    StartBatch();
  } else {
    waits_.Add({.at = decided_,
                .until = decision_.wait_until,
                .reason = decision_.wait_reason,
                .waiting = decision_.size});
  }
  return decision_.launch;
}

// Tickets of a request's rows follow each other, so that in their order its rows are neighbours.
void ModelRunner::StartBatch() {
  std::sort(batch_.begin(), batch_.end(), [](const WaitingSequence* a, const WaitingSequence* b) {
    return a->ticket < b->ticket;
  });
  for (WaitingSequence* sequence : batch_) {
    Row* const row = static_cast<Row*>(sequence);
    row->state = Row::State::kRunning;
    running_.push_back(row);
    if (!std::exchange(row->owner->began, true)) ++running_requests_;
  }
  stepping_sequences_ = static_cast<int64_t>(running_.size());
}

}  // namespace sluice
