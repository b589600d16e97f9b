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
    if (!finished_.empty()) {
      EndFinished();
    } else if (!running_.empty()) {
      RunBatch();
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
    if (stopping_) return false;
    clock_->WaitUntil(&wake_, &mu_, std::min(decision_.wait_until, queue().EarliestDeadline()));
  }
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

void ModelRunner::EndFinished() {
  for (std::unique_ptr<ActiveRequest>& request : finished_) {
    request->trace.done = clock_->Now();
    for (const Row& row : request->rows) {
      request->trace.reused_tokens += row.reused_tokens;
      request->trace.preemptions += row.preemptions;
    }
    observer_->OnRequestDone(request->request, request->status, request->trace);
    if (request->trace.steps == 0) request->history.waits = waits_.Since(request->trace.queued);
    history_.Add(request->request, request->status, request->trace, std::move(request->history));
    request->sink->OnDone(request->status, std::move(request->reply), request->trace);
  }
  finished_.clear();
  MutexLock lock(&mu_);
  ending_ = false;
  if (requests_.empty() && ended_.empty()) idle_.SignalAll();
}

void ModelRunner::RunBatch() {
  ++step_;
  for (Row* row : running_) row->owner->AllocateReply();
  const PlanCache::Found found = plans_.Find(decision_.bucket, Needs());
  if (found.plan == nullptr) {
    AbandonBatch(absl::FailedPreconditionError(
        absl::StrCat("no plan can run the request's step: ", LookupName(found.lookup).data())));
    return;
  }
  const Plan& plan = found.plan->plan();
  ExecutionSlot& slot = *prepared_.slot;
  slot.Assign(running_, plan.bucket());
  const StepShape shape = ShapeOf(batch_, plan.bucket());

  const MonoTime start = clock_->Now();
  const absl::Status status = slot.Replay(plan);
  const MonoTime end = clock_->Now();

  NoteStep({.step = step_,
            .start = start,
            .replay = end - start,
            .bucket = plan.bucket(),
            .batch = decision_.size,
            .trigger = decision_.trigger,
            .lookup = found.lookup});
  DropDead(status, end);
  DeliverStep(running_, end, &slot, &delivery_);
  const MonoTime delivered = clock_->Now();
  Settle(status.ok() ? &shape : nullptr, end - start);
  if (!status.ok()) return;
  const int64_t computed = slot.computed_tokens();
  const BatchTrace trace{
      .model = model_.get(),
      .bucket = plan.bucket(),
      .useful_tokens = slot.useful_tokens(),
      .computed_tokens = (computed + row_multiple_ - 1) / row_multiple_ * row_multiple_,
      .sequences = decision_.size.sequences,
      .sampled_rows = shape.sampled_rows,
      .trigger = decision_.trigger,
      .lookup = found.lookup,
      .start = start,
      .form = start - decided_,
      .replay = end - start,
      .deliver = delivered - end};
  found.plan->use().Record(trace);
  observer_->OnBatch(trace);
}

StepNeeds ModelRunner::Needs() const {
  StepNeeds needs{.size = decision_.size};
  for (const Row* row : running_) {
    const ActiveRequest& active = *row->owner;
    if (active.Wants(kOutputTopCandidates)) {
      needs.num_top = std::max(needs.num_top, active.request.num_top);
    }
    needs.edits |= row->edits != nullptr;
  }
  return needs;
}

void ModelRunner::AbandonBatch(const absl::Status& status) {
  DropDead(status, clock_->Now());
  Settle(nullptr, nanoseconds(0));
}

// Tells each request of the step that carries it; its rows are neighbours.
void ModelRunner::NoteStep(const ExplainedStep& step) {
  for (size_t i = 0; i < running_.size();) {
    ActiveRequest* const request = running_[i]->owner;
    ExplainedStep own = step;
    for (; i < running_.size() && running_[i]->owner == request; ++i) {
      own.own_tokens += running_[i]->tokens;
    }
    RequestTrace& trace = request->trace;
    if (trace.steps++ == 0) {
      trace.first_run = step.start;
      request->history.waits = waits_.Since(trace.queued);
    }
    trace.bucket_tokens = step.bucket.tokens;
    trace.compute += step.replay;
    request->history.Add(own);
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
  stepping_sequences_ = 0;
  if (timed != nullptr) {
    scheduler_.Observe(*timed, std::chrono::duration<double>(replay).count());
  }
  for (Row* row : running_) {
    ActiveRequest* const request = row->owner;
    if (row->outcome == Row::Outcome::kNotFinite) {
      Fail(request,
           absl::InternalError(absl::StrCat("logits of row ", row->index, " are not finite")));
    }
    if (row->outcome == Row::Outcome::kContinues && request->status.ok()) {
      scheduler_.Computed(row);
      row->state = Row::State::kWaiting;
      scheduler_.Return(row);
      CountWork(row);
    } else {
      if (row->outcome == Row::Outcome::kFinished) {
        scheduler_.Computed(row);
        LearnSteps(*row);
      }
      scheduler_.End(row);
      RowDone(row);
    }
  }
}

}  // namespace sluice
