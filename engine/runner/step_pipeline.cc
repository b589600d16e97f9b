// How a ModelRunner runs a decided batch.
#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/reason.h"
#include "engine/runner/delivery.h"
#include "engine/runner/model_runner.h"

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

bool ModelRunner::Launch(Flight* flight) {
  flight->number = ++last_batch_;
  for (Row* row : flight->rows) row->owner->AllocateReply();
  const Step step{.sequences = flight->sequences,
                  .rows = flight->rows,
                  .size = flight->decision.size,
                  .bucket = flight->decision.bucket};
  switch (Begin(flight, step)) {
    case Begun::kStarted:
      under_way_.push_back(flight);
      return true;
    case Begun::kFailed:
      return true;
    case Begun::kSplit:
      break;
  }
  return FinishAll() && RunHalves(flight, step);
}

bool ModelRunner::FinishOldest() {
  Flight* const flight = under_way_.front();
  under_way_.erase(under_way_.begin());
  const absl::Status status = Await(flight);
  if (!pulse_.Replayed()) return false;
  if (!Conclude(flight, status)) {
    const Step step = flight->step;
    return FinishAll() && RunHalves(flight, step);
  }
  if (status.ok()) settled_ = flight;
  return true;
}

// Before steps that are run by themselves.
bool ModelRunner::FinishAll() {
  while (!under_way_.empty() || settled_ != nullptr) {
    if (settled_ != nullptr) {
      Deliver(std::exchange(settled_, nullptr));
    } else if (!FinishOldest()) {
      return false;
    }
  }
  return true;
}

// The halves' results are those of the whole: a step writes where it would have written anyway, and no
// result depends on who else rides.
bool ModelRunner::RunHalves(Flight* flight, const Step& step) {
  const size_t half = step.rows.size() / 2;
  return RunStep(flight, Part(step, 0, half)) &&
         RunStep(flight, Part(step, half, step.rows.size() - half));
}

// By itself, from its start to its delivery.
bool ModelRunner::RunStep(Flight* flight, const Step& step) {
  const Begun begun = Begin(flight, step);
  if (begun == Begun::kFailed) return true;
  if (begun == Begun::kSplit) return RunHalves(flight, step);
  const absl::Status status = Await(flight);
  if (!pulse_.Replayed()) return false;
  if (!Conclude(flight, status)) return RunHalves(flight, step);
  if (status.ok()) Deliver(flight);
  return true;
}

ModelRunner::Begun ModelRunner::Begin(Flight* flight, const Step& step) {
  flight->step = step;
  if (absl::Status fault = MeetStepFault(FaultPoint::kBeforeReplay, step.rows); !fault.ok()) {
    FailStep(step, fault);
    return Begun::kFailed;
  }
  const PlanCache::Found found = flight->plans.Find(
      step.bucket, Needs(step),
      [&](const Bucket& bucket) { return Cost(ShapeOf(step.sequences, bucket)); });
  if (found.plan == nullptr) {
    observer_->OnNoPlan(*model_, found.lookup);
    // What one row needs must not fail its neighbours.
    if (step.rows.size() > 1) return Begun::kSplit;
    FailStep(step, NoPlanError(found.lookup));
    return Begun::kFailed;
  }
  const Plan& plan = found.plan->plan();
  flight->ran = {
      .plan = found.plan, .lookup = found.lookup, .shape = ShapeOf(step.sequences, plan.bucket())};
  flight->slot->Assign(step.rows, plan.bucket());
  flight->ran.started = clock_->Now();
  flight->slot->Start(plan);
  return Begun::kStarted;
}

absl::Status ModelRunner::Await(Flight* flight) {
  Ran& ran = flight->ran;
  // A backend that takes no step ahead works while it is waited for.
  ran.start = pipelined() ? std::max(ran.started, device_free_) : clock_->Now();
  pulse_.Replaying(Allowed(ran.shape));
  const absl::Status fault = MeetStepFault(FaultPoint::kReplay, flight->step.rows);
  const absl::Status status = flight->slot->Finish();
  ran.end = device_free_ = clock_->Now();
  return fault.ok() ? status : fault;
}

bool ModelRunner::Conclude(Flight* flight, const absl::Status& status) {
  const Step& step = flight->step;
  const Ran& ran = flight->ran;
  const bool split = absl::IsResourceExhausted(status) && step.rows.size() > 1;
  NoteOutcome(status, split);
  if (split) return false;
  NoteStep(*flight);
  if (!status.ok()) {
    FailStep(step, StepError(status));
    return true;
  }
  DropDead(step.rows, absl::OkStatus(), ran.end);
  flight->delivery.Collect(step.rows, ran.end, flight->slot);
  Settle(step.rows, &ran.shape, ran.end - ran.start);
  flight->trace = TraceOf(*flight);
  flight->trace.deliver = clock_->Now() - ran.end;
  ran.plan->use().Record(flight->trace);
  return true;
}

BatchTrace ModelRunner::TraceOf(const Flight& flight) const {
  const Ran& ran = flight.ran;
  const int64_t computed = flight.slot->computed_tokens();
  return {.model = model_.get(),
          .bucket = ran.bucket(),
          .useful_tokens = flight.slot->useful_tokens(),
          .computed_tokens = (computed + row_multiple_ - 1) / row_multiple_ * row_multiple_,
          .sequences = flight.step.size.sequences,
          .sampled_rows = ran.shape.sampled_rows,
          .trigger = flight.decision.trigger,
          .lookup = ran.lookup,
          .start = ran.start,
          .form = ran.started - flight.decided,
          .replay = ran.end - ran.start,
          .deliver = nanoseconds(0)};
}

void ModelRunner::Deliver(Flight* flight) {
  const MonoTime begin = clock_->Now();
  MeetStepFault(FaultPoint::kDeliver, flight->step.rows).IgnoreError();  // it only delays
  flight->delivery.Send();
  flight->trace.deliver += clock_->Now() - begin;
  observer_->OnBatch(flight->trace);
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

// Tells each request of the step that carries it; its rows are neighbours.
void ModelRunner::NoteStep(const Flight& flight) {
  const Ran& ran = flight.ran;
  const std::span<Row* const> rows = flight.step.rows;
  for (size_t i = 0; i < rows.size();) {
    ActiveRequest* const request = rows[i]->owner;
    ExplainedStep own{.step = flight.number,
                      .start = ran.start,
                      .replay = ran.end - ran.start,
                      .bucket = ran.bucket(),
                      .batch = flight.step.size,
                      .trigger = flight.decision.trigger,
                      .lookup = ran.lookup};
    for (; i < rows.size() && rows[i]->owner == request; ++i) own.own_tokens += rows[i]->tokens;
    RequestTrace& trace = request->trace;
    if (trace.steps++ == 0) {
      trace.first_run = ran.start;
      request->history.waits = waits_.Since(trace.queued);
    }
    trace.bucket_tokens = ran.bucket().tokens;
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
