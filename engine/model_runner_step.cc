// How a ModelRunner runs a decided batch.
#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/delivery.h"
#include "engine/model_runner.h"
#include "engine/reason.h"

namespace sluice {
namespace {

absl::Status NoPlanError(Lookup lookup) {
  return absl::FailedPreconditionError(
      absl::StrCat("no plan can run the request's step: ", LookupName(lookup).data()));
}

// What a step failed with, as its requests hear of it.
absl::Status StepError(const absl::Status& replayed) {
  if (absl::IsUnavailable(replayed)) {
    return WithReason(
        absl::UnavailableError(absl::StrCat("the device is lost: ", replayed.message())),
        "device_lost");
  }
  if (!absl::IsResourceExhausted(replayed)) return replayed;
  return WithReason(
      absl::ResourceExhaustedError(absl::StrCat(
          "the device has no memory for the request's step alone: ", replayed.message())),
      "device_memory");
}

}  // namespace

bool ModelRunner::RunBatch() {
  ++step_;
  for (Row* row : running_) row->owner->AllocateReply();
  return RunStep(
      {.sequences = batch_, .rows = running_, .size = decision_.size, .bucket = decision_.bucket});
}

bool ModelRunner::RunStep(const Step& step) {
  if (absl::Status fault = MeetStepFault(FaultPoint::kBeforeReplay, step.rows); !fault.ok()) {
    FailStep(step, fault);
    return true;
  }
  const PlanCache::Found found = plans_.Find(step.bucket, Needs(step), [&](const Bucket& bucket) {
    return Cost(ShapeOf(step.sequences, bucket));
  });
  if (found.plan == nullptr) {
    observer_->OnNoPlan(*model_, found.lookup);
    // What one row needs must not fail its neighbours.
    if (step.rows.size() > 1) return RunHalves(step);
    FailStep(step, NoPlanError(found.lookup));
    return true;
  }
  const Plan& plan = found.plan->plan();
  Ran ran{.bucket = plan.bucket(),
          .lookup = found.lookup,
          .shape = ShapeOf(step.sequences, plan.bucket())};
  const absl::Status status = Replay(step, plan, &ran);
  if (!pulse_.Replayed()) return false;
  const bool split = absl::IsResourceExhausted(status) && step.rows.size() > 1;
  NoteOutcome(status, split);
  if (split) return RunHalves(step);
  NoteStep(step, ran);
  if (!status.ok()) {
    FailStep(step, StepError(status));
    return true;
  }
  const BatchTrace trace = Conclude(step, ran);
  found.plan->use().Record(trace);
  observer_->OnBatch(trace);
  return true;
}

absl::Status ModelRunner::Replay(const Step& step, const Plan& plan, Ran* ran) {
  prepared_.slot->Assign(step.rows, plan.bucket());
  const nanoseconds allowed = Allowed(ran->shape);
  ran->start = clock_->Now();
  pulse_.Replaying(allowed);
  absl::Status status = MeetStepFault(FaultPoint::kReplay, step.rows);
  if (status.ok()) status = prepared_.slot->Replay(plan);
  ran->end = clock_->Now();
  return status;
}

// Hands out what a replay without error gave.
BatchTrace ModelRunner::Conclude(const Step& step, const Ran& ran) {
  const nanoseconds replay = ran.end - ran.start;
  DropDead(step.rows, absl::OkStatus(), ran.end);
  Deliver(step.rows, ran.end);
  const MonoTime delivered = clock_->Now();
  Settle(step.rows, &ran.shape, replay);
  const int64_t computed = prepared_.slot->computed_tokens();
  return {.model = model_.get(),
          .bucket = ran.bucket,
          .useful_tokens = prepared_.slot->useful_tokens(),
          .computed_tokens = (computed + row_multiple_ - 1) / row_multiple_ * row_multiple_,
          .sequences = step.size.sequences,
          .sampled_rows = ran.shape.sampled_rows,
          .trigger = decision_.trigger,
          .lookup = ran.lookup,
          .start = ran.start,
          .form = ran.start - decided_,
          .replay = replay,
          .deliver = delivered - ran.end};
}

// The halves' results are those of the whole: a step writes where it would have written anyway, and no
// result depends on who else rides.
bool ModelRunner::RunHalves(const Step& step) {
  const size_t half = step.rows.size() / 2;
  return RunStep(Part(step, 0, half)) && RunStep(Part(step, half, step.rows.size() - half));
}

ModelRunner::Step ModelRunner::Part(const Step& step, size_t begin, size_t count) const {
  Step part{.sequences = step.sequences.subspan(begin, count),
            .rows = step.rows.subspan(begin, count),
            .size = {},
            .bucket = {}};
  for (const WaitingSequence* sequence : part.sequences) {
    part.size.tokens += sequence->tokens;
    ++part.size.sequences;
    part.size.longest = std::max(part.size.longest, sequence->tokens);
  }
  MutexLock lock(&mu_);
  part.bucket = *scheduler_.scheduler().ladder()->Choose(part.size);
  return part;
}

double ModelRunner::Cost(const StepShape& shape) const {
  MutexLock lock(&mu_);
  return scheduler_.scheduler().costs().Estimate(shape);
}

nanoseconds ModelRunner::Allowed(const StepShape& shape) const {
  const nanoseconds floor = std::chrono::microseconds(watchdog_.hang_us);
  const std::chrono::duration<double> estimate(Cost(shape));
  // Beyond an hour an estimate is none.
  const auto scaled =
      std::min<std::chrono::duration<double>>(watchdog_.factor * estimate, std::chrono::hours(1));
  return std::max(floor, std::chrono::duration_cast<nanoseconds>(scaled));
}

absl::Status ModelRunner::MeetStepFault(FaultPoint point, std::span<Row* const> rows) const {
  if (!FaultsOn()) return absl::OkStatus();
  return MeetFault(point, [rows](std::string_view id) {
    return std::any_of(rows.begin(), rows.end(),
                       [id](const Row* row) { return row->owner->request.id == id; });
  });
}

StepNeeds ModelRunner::Needs(const Step& step) const {
  StepNeeds needs{.size = step.size};
  for (const Row* row : step.rows) {
    const ActiveRequest& active = *row->owner;
    if (active.Wants(kOutputTopCandidates)) {
      needs.num_top = std::max(needs.num_top, active.request.num_top);
    }
  }
  return needs;
}

void ModelRunner::FailStep(const Step& step, const absl::Status& status) {
  DropDead(step.rows, status, clock_->Now());
  Settle(step.rows, nullptr, nanoseconds(0));
}

void ModelRunner::NoteOutcome(const absl::Status& status, bool split) {
  if (status.ok()) {
    if (std::exchange(failed_steps_, 0) > 0) observer_->OnStepsRecovered(*model_);
    return;
  }
  if (!split) ++failed_steps_;
  observer_->OnStepFailed(*model_, status, failed_steps_);
}

void ModelRunner::Deliver(std::span<Row* const> rows, MonoTime now) {
  MeetStepFault(FaultPoint::kDeliver, rows).IgnoreError();  // it only delays
  DeliverStep(rows, now, prepared_.slot.get(), &delivery_);
}

// Tells each request of the step that carries it; its rows are neighbours.
void ModelRunner::NoteStep(const Step& step, const Ran& ran) {
  const std::span<Row* const> rows = step.rows;
  for (size_t i = 0; i < rows.size();) {
    ActiveRequest* const request = rows[i]->owner;
    ExplainedStep own{.step = step_,
                      .start = ran.start,
                      .replay = ran.end - ran.start,
                      .bucket = ran.bucket,
                      .batch = step.size,
                      .trigger = decision_.trigger,
                      .lookup = ran.lookup};
    for (; i < rows.size() && rows[i]->owner == request; ++i) own.own_tokens += rows[i]->tokens;
    RequestTrace& trace = request->trace;
    if (trace.steps++ == 0) {
      trace.first_run = ran.start;
      request->history.waits = waits_.Since(trace.queued);
    }
    trace.bucket_tokens = ran.bucket.tokens;
    trace.compute += own.replay;
    request->history.Add(own);
  }
}

// Fails the requests that the step itself failed, or whose deadline it outlasted, and marks the
// rows whose results nobody gets.
void ModelRunner::DropDead(std::span<Row* const> rows, const absl::Status& replayed, MonoTime now) {
  MutexLock lock(&mu_);
  for (Row* row : rows) {
    if (!replayed.ok()) {
      Fail(row->owner, replayed);
    } else if (row->deadline <= now) {
      Fail(row->owner, absl::DeadlineExceededError("the deadline passed while the request ran"));
    }
    row->outcome = row->owner->status.ok() ? Row::Outcome::kContinues : Row::Outcome::kDropped;
  }
}

// Sends each row on its way: back into the queue, or to its end. `timed` is nullptr after an error.
void ModelRunner::Settle(std::span<Row* const> rows, const StepShape* timed, nanoseconds replay) {
  MutexLock lock(&mu_);
  ++steps_;
  stepping_sequences_ -= static_cast<int64_t>(rows.size());
  if (timed != nullptr) {
    scheduler_.Observe(*timed, std::chrono::duration<double>(replay).count());
  }
  for (Row* row : rows) {
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
