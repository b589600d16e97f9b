// The scheduling thread of a ModelRunner.
#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/delivery.h"
#include "engine/model_runner.h"
#include "kernels/check.h"

namespace sluice {

void ModelRunner::Run() {
  while (NextWork()) {
    if (finished_.empty()) {
      RunBatch();
    } else {
      EndFinished();
    }
  }
}

// Waits until there are requests to end (then in finished_) or a batch to run (then in running_);
// false when the runner stops. Ends come first, so that none waits for a batch.
bool ModelRunner::NextWork() {
  MutexLock lock(&mu_);
  while (true) {
    decided_ = clock_->Now();
    ExpireWaiting(decided_);
    if (!ended_.empty()) {
      finished_.swap(ended_);
      ending_ = true;
      return true;
    }
    decision_ = Decide(decided_);
    if (decision_.sequences > 0) {
      Take(decision_.sequences);
      return true;
    }
    if (stopping_) return false;
    clock_->WaitUntil(&wake_, &mu_, std::min(decision_.wait_until, queue_.EarliestDeadline()));
  }
}

void ModelRunner::ExpireWaiting(MonoTime now) {
  while (WaitingSequence* expired = queue_.Expired(now)) {
    Fail(static_cast<Row*>(expired)->owner,
         absl::DeadlineExceededError("the deadline passed while the request waited"));
  }
}

BatchDecision ModelRunner::Decide(MonoTime now) {
  queue_.Front(static_cast<size_t>(prepared_.ladder.largest().sequences), &window_);
  const BatchPolicy policy{
      .max_queue_delay = std::chrono::microseconds(options_.batch.max_queue_delay_us),
      .draining = draining_};
  return FormBatch(window_, prepared_.ladder, prepared_.costs, policy, now);
}

void ModelRunner::Take(int32_t sequences) {
  running_.clear();
  const ActiveRequest* previous = nullptr;
  for (int32_t i = 0; i < sequences; ++i) {
    Row* const row = static_cast<Row*>(window_[static_cast<size_t>(i)]);
    queue_.Remove(row);
    row->state = Row::State::kRunning;
    running_.push_back(row);
    if (row->owner != std::exchange(previous, row->owner)) ++running_requests_;
  }
}

void ModelRunner::EndFinished() {
  for (std::unique_ptr<ActiveRequest>& request : finished_) {
    request->trace.done = clock_->Now();
    observer_->OnRequestDone(request->request, request->status, request->trace);
    request->sink->OnDone(request->status, request->TakeReply(), request->trace);
  }
  finished_.clear();
  MutexLock lock(&mu_);
  ending_ = false;
  if (requests_.empty() && ended_.empty()) idle_.SignalAll();
}

void ModelRunner::RunBatch() {
  for (Row* row : running_) row->owner->AllocateReply();
  ExecutionSlot& slot = *prepared_.slot;
  slot.Assign(running_);
  const PlanCache::Found found = plans_.Find(decision_.bucket);
  SLUICE_CHECK(found.plan != nullptr);  // the ladder's largest bucket is always ready
  if (found.lookup != Lookup::kHit) prepared_.plans->PrepareLater(decision_.bucket);
  const Plan& plan = found.plan->plan();
  const StepShape shape = slot.Shape(plan.bucket());

  const MonoTime start = clock_->Now();
  const absl::Status status = slot.Replay(plan);
  const MonoTime end = clock_->Now();

  NoteStep(plan.bucket(), start, end - start);
  DropDead(status, end);
  DeliverStep(running_, end, &slot, &tokens_);
  const MonoTime delivered = clock_->Now();
  Settle(status.ok() ? &shape : nullptr, end - start);
  if (!status.ok()) return;
  const int64_t tokens = slot.tokens();
  const BatchTrace trace{
      .model = model_.get(),
      .bucket = plan.bucket(),
      .useful_tokens = tokens,
      .computed_tokens = (tokens + row_multiple_ - 1) / row_multiple_ * row_multiple_,
      .sequences = decision_.sequences,
      .sampled_rows = shape.sampled_rows,
      .trigger = decision_.trigger,
      .lookup = found.lookup,
      .start = start,
      .form = start - decided_,
      .replay = end - start,
      .deliver = delivered - end};
  found.plan->Record(trace);
  observer_->OnBatch(trace);
}

void ModelRunner::NoteStep(const Bucket& bucket, MonoTime start, nanoseconds replay) {
  const ActiveRequest* previous = nullptr;
  for (Row* row : running_) {
    if (row->owner == std::exchange(previous, row->owner)) continue;
    RequestTrace& trace = row->owner->trace;
    if (trace.steps++ == 0) trace.first_run = start;
    trace.bucket_tokens = bucket.tokens;
    trace.compute += replay;
  }
}

// Fails the requests that the step itself failed, or whose deadline it outlasted, and marks the
// rows whose results nobody gets.
void ModelRunner::DropDead(const absl::Status& replayed, MonoTime now) {
  MutexLock lock(&mu_);
  for (Row* row : running_) {
    if (!replayed.ok()) {
      Fail(row->owner, replayed);
    } else if (row->deadline <= now) {
      Fail(row->owner, absl::DeadlineExceededError("the deadline passed while the request ran"));
    }
    row->outcome = row->owner->status.ok() ? Row::Outcome::kContinues : Row::Outcome::kDropped;
  }
}

// Sends each row on its way: back into the queue, or to its end. `timed` is nullptr after an error.
void ModelRunner::Settle(const StepShape* timed, nanoseconds replay) {
  MutexLock lock(&mu_);
  ++steps_;
  running_requests_ = 0;
  if (timed != nullptr) {
    prepared_.costs.Observe(*timed, std::chrono::duration<double>(replay).count());
  }
  for (Row* row : running_) {
    ActiveRequest* const request = row->owner;
    row->work -= row->tokens;
    work_tokens_ -= row->tokens;
    if (row->outcome == Row::Outcome::kNotFinite) {
      Fail(request,
           absl::InternalError(absl::StrCat("logits of row ", row->index, " are not finite")));
    }
    if (row->outcome == Row::Outcome::kContinues && request->status.ok()) {
      row->tokens = row->length();
      row->state = Row::State::kWaiting;
      queue_.Push(row);
    } else {
      RowDone(row);
    }
  }
}

}  // namespace sluice
