#include "engine/runner/steps/step_pipeline.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/out_of_memory.h"
#include "base/reason.h"

namespace sluice {
namespace {

// A slot frees memory that no step has used for this long.
constexpr std::chrono::minutes kTrimInterval{1};

absl::Status NoPlanError(Lookup lookup) {
  return absl::FailedPreconditionError(
      absl::StrCat("no plan can run the request's step: ", LookupName(lookup).data()));
}

// Returns the error that the requests of a failed step receive.
absl::Status StepError(const absl::Status& replayed) {
  if (absl::IsUnavailable(replayed)) {
    return ReasonError(Reason::kDeviceLost,
                       absl::StrCat("the device is lost: ", replayed.message()));
  }
  if (!absl::IsResourceExhausted(replayed) || ReasonOf(replayed) == Reason::kMemory) {
    return replayed;
  }
  return ReasonError(Reason::kDeviceMemory,
                     absl::StrCat("the device has too little memory for the request's step: ",
                                  replayed.message()));
}

Concerns Concerned(std::span<RequestRow* const> rows) {
  return [rows](std::string_view id) {
    return std::any_of(rows.begin(), rows.end(),
                       [id](const RequestRow* row) { return row->owner->request.spec->id == id; });
  };
}

}  // namespace

StepPipeline::StepPipeline(const Model* model, const PreparedModel* prepared,
                           const WatchdogOptions& watchdog, Clock* clock, Observer* observer,
                           const RecentWaits* waits, RunnerState* state, Heartbeat* heartbeat)
    : model_(model),
      prepared_(*prepared),
      watchdog_(watchdog),
      clock_(clock),
      observer_(observer),
      state_(state),
      heartbeat_(heartbeat),
      scorer_(prepared_.executable.get(), model, clock, state),
      records_(model, prepared_.executable->computed_rows(), observer, waits) {
  const size_t sequences = prepared_.ladder->max_sequences();
  SLUICE_CHECK(prepared_.slots.size() <= 2);
  steps_.reserve(prepared_.slots.size());  // pointers to them stay valid
  for (const std::unique_ptr<ExecutionSlot>& slot : prepared_.slots) {
    steps_.emplace_back(slot.get(), prepared_.plans.get(), sequences);
  }
  under_way_.reserve(steps_.size());
  trim_at_ = clock_->Now() + kTrimInterval;
}

StepPipeline::Next StepPipeline::NextOf(const RequestRow& row, MonoTime now) const {
  if (row.is_void() || !row.owner->status.ok()) return Next::kEnds;
  if (row.deadline <= now) return Next::kEnds;
  const bool at_end = row.later_tokens == 0;
  if (at_end && !row.generates) return Next::kEnds;
  if (at_end && row.drawn() + 1 >= row.generation.limit) return Next::kEnds;
  if (!prepared_.kv.keeps_pages || row.drafted > 0) return Next::kUnknown;
  const bool known = at_end ? row.generation.edits == nullptr : row.outputs.states == nullptr;
  return known ? Next::kContinues : Next::kUnknown;
}

bool StepPipeline::MayDecide(MonoTime now) const {
  if (under_way_.size() + (finished_ == nullptr ? 0 : 1) == steps_.size()) return false;
  for (const InFlightStep* step : under_way_) {
    for (const RequestRow* row : step->running.rows) {
      if (NextOf(*row, now) == Next::kUnknown) return false;
    }
  }
  return true;
}

InFlightStep* StepPipeline::Decide(MonoTime now, BatchDecision* decision) {
  InFlightStep* const step = FreeStep();
  const bool ahead = !under_way_.empty();
  if (ahead) ReturnAhead(*under_way_.front(), now);
  *decision = {};
  if (!state_->queue().empty()) {
    *decision =
        state_->scheduler.Decide(now, state_->admission.draining(), &step->sequences, ahead);
  }
  step->decided = now;
  step->decision = *decision;
  if (decision->launch) Take(step);
  if (ahead) Recall(*under_way_.front());
  return decision->launch ? step : nullptr;
}

// Queues the rows of a step in progress that continue after it, so that the next decision can take
// them before their results are known. Recall undoes it for the rows that the decision did not
// take, and Rewind for the others if the step in progress must run again.
void StepPipeline::ReturnAhead(const InFlightStep& step, MonoTime now) {
  for (RequestRow* row : step.running.rows) {
    if (NextOf(*row, now) != Next::kContinues) continue;
    state_->scheduler.ReturnAhead(row, row->later_tokens == 0);
  }
}

// Takes back the rows that are still queued.
void StepPipeline::Recall(const InFlightStep& step) {
  for (RequestRow* row : step.running.rows) {
    if (row->state() == SequenceState::kQueuedAhead) state_->scheduler.Recall(row);
  }
}

InFlightStep* StepPipeline::FreeStep() {
  for (InFlightStep& step : steps_) {
    const bool busy = std::find(under_way_.begin(), under_way_.end(), &step) != under_way_.end();
    if (!busy && &step != finished_) return &step;
  }
  return nullptr;
}

// The tickets of a request's rows are consecutive, so its rows are adjacent in ticket order.
void StepPipeline::Take(InFlightStep* step) {
  std::vector<WaitingSequence*>& sequences = step->sequences;
  std::sort(
      sequences.begin(), sequences.end(),
      [](const WaitingSequence* a, const WaitingSequence* b) { return a->ticket < b->ticket; });
  step->ListRows();
  state_->requests.BeginStep(step->rows);
}

bool StepPipeline::HasStalePlans() const {
  return std::any_of(steps_.begin(), steps_.end(),
                     [](const InFlightStep& step) { return step.plans.stale(); });
}

void StepPipeline::ReleaseStalePlans() {
  for (InFlightStep& step : steps_) step.plans.Refresh();
}

void StepPipeline::Trim() {
  bool again = prepared_.slots.front()->Trim();
  for (const std::unique_ptr<ExecutionSlot>& slot : prepared_.slots) again |= slot->TrimBuffers();
  trim_at_ = again ? clock_->Now() + kTrimInterval : MonoTime::max();
}

void StepPipeline::DeliverFinished() { Deliver(std::exchange(finished_, nullptr)); }

// Lets the draft model write the drafted tokens of the step. If a request arrives in this time, the
// step continues without them.
bool StepPipeline::DraftTokens(InFlightStep* step) {
  DraftModel* const model = prepared_.draft.get();
  const auto has_arrivals = [this] {
    MutexLock lock(&state_->mu);
    return !state_->scheduler.scheduler().queue().empty();
  };
  bool fewer = false;
  for (RequestRow* row : step->rows) {
    const int32_t wanted = row->drafted;
    if (row->draft_kind != DraftKind::kModel || wanted == 0) continue;
    heartbeat_->BeginStep(AllowedTime(model->Estimate(*row, wanted)));
    const int32_t drafted = model->Draft(row, wanted, has_arrivals);
    if (!heartbeat_->EndStep()) return false;
    if (drafted == wanted) continue;
    fewer = true;
    MutexLock lock(&state_->mu);
    state_->scheduler.KeepDrafts(row, drafted);
  }
  if (!fewer) return true;
  BatchSize& size = step->decision.size;
  size = {};
  for (const RequestRow* row : step->rows) size.Add(row->tokens);
  step->decision.bucket = BucketOf(size).value_or(step->decision.bucket);
  return true;
}

// Finds the vectors of labels of requests that begin with this step, and computes those that are
// not kept. Sets *status after an error of the device. Returns false after a hang.
bool StepPipeline::EncodeLabels(InFlightStep* step, absl::Status* status) {
  LabelEncoder& encoder = *prepared_.labels;
  for (RequestRow* row : step->rows) {
    ActiveRequest& active = *row->owner;
    if (!active.Wants(kOutputExtraction) || !active.label_vectors.empty()) continue;
    const std::vector<std::string>& labels = active.request.spec->extraction.labels;
    bool found = false;
    const auto find = [&] {
      found = encoder.Find(labels, &active.label_vectors);
      return absl::OkStatus();
    };
    while (true) {
      *status = OrOutOfMemory(find);
      if (found || !status->ok()) break;
      heartbeat_->BeginStep(AllowedTime(encoder.step_seconds()));
      *status = OrOutOfMemory([&] { return encoder.ComputeSome(labels); });
      if (!heartbeat_->EndStep()) return false;
      if (!status->ok()) break;
    }
    if (!status->ok()) return true;
  }
  return true;
}

bool StepPipeline::Launch(InFlightStep* step) {
  if (prepared_.draft != nullptr && !DraftTokens(step)) return false;
  step->number = ++last_batch_;
  if (trim_at_ == MonoTime::max()) trim_at_ = step->decided + kTrimInterval;
  absl::Status status = OrOutOfMemory([step] {
    for (RequestRow* row : step->rows) row->owner->AllocateReply();
    return absl::OkStatus();
  });
  const StepRows rows{.sequences = step->sequences,
                      .rows = step->rows,
                      .size = step->decision.size,
                      .bucket = step->decision.bucket};
  if (status.ok() && prepared_.labels != nullptr && !EncodeLabels(step, &status)) return false;
  if (!status.ok()) {
    step->running = rows;
    records_.RecordOutcome(status, /*split=*/false);
    FailStep(step, StepError(status));
    return true;
  }
  switch (Start(step, rows)) {
    case StartResult::kStarted:
      under_way_.push_back(step);
      return true;
    case StartResult::kFailed:
      return true;
    case StartResult::kSplit:
      break;
  }
  held_ = step;
  const bool ended = FinishAll();
  held_ = nullptr;
  return ended && RunHalves(step, DropVoid(step));
}

bool StepPipeline::FinishOldest() {
  InFlightStep* const step = under_way_.front();
  under_way_.erase(under_way_.begin());
  const absl::Status status = Await(step);
  if (!heartbeat_->EndStep()) return false;
  if (!Conclude(step, status)) {
    const StepRows rows = DropVoid(step);
    Rewind(rows);
    if (held_ != nullptr) DropVoid(held_);
    return FinishAll() && RunHalves(step, rows);
  }
  if (status.ok()) finished_ = step;
  return true;
}

// Ends all steps under way, before a step that must run without others.
bool StepPipeline::FinishAll() {
  while (!under_way_.empty() || finished_ != nullptr) {
    if (finished_ != nullptr) {
      DeliverFinished();
    } else if (!FinishOldest()) {
      return false;
    }
  }
  return true;
}

// Removes rows that must run again from the step that was decided after their step.
void StepPipeline::Rewind(const StepRows& rows) {
  for (RequestRow* row : rows.rows) {
    MutexLock lock(&state_->mu);
    if (row->state() == SequenceState::kRunningAhead) state_->scheduler.Rewind(row);
  }
}

// A row is void in a step that carries it although its result is not used: it ended with the
// earlier step, or the earlier step must run again. DropVoid removes the void rows from a step that
// has not been concluded, and returns the others.
StepRows StepPipeline::DropVoid(InFlightStep* step) {
  {
    MutexLock lock(&state_->mu);
    for (RequestRow* row : step->rows) {
      if (!row->is_void()) continue;
      std::erase(step->sequences, row);
      LeaveVoid(row);
    }
  }
  return step->ListRows();
}

// Running the halves gives the same results: a step writes to the same places in any batch, and no
// result depends on the rest of the batch.
bool StepPipeline::RunHalves(InFlightStep* step, const StepRows& rows) {
  const size_t count = rows.rows.size(), half = count / 2;
  return RunPart(step, rows, 0, half) && RunPart(step, rows, half, count - half);
}

// If the ladder changed after the step was decided, no bucket may fit all of its rows. Every ladder
// has a bucket for each single row.
bool StepPipeline::RunPart(InFlightStep* step, const StepRows& rows, size_t begin, size_t count) {
  if (count == 0) return true;
  StepRows part = rows.Part(begin, count);
  const std::optional<Bucket> bucket = BucketOf(part.size);
  if (!bucket.has_value()) {
    SLUICE_CHECK(count > 1);
    return RunHalves(step, part);
  }
  part.bucket = *bucket;
  return RunAlone(step, part);
}

// Runs rows from start to delivery. No other step may be under way.
bool StepPipeline::RunAlone(InFlightStep* step, const StepRows& rows) {
  const StartResult started = Start(step, rows);
  if (started == StartResult::kFailed) return true;
  if (started == StartResult::kSplit) return RunHalves(step, rows);
  const absl::Status status = Await(step);
  if (!heartbeat_->EndStep()) return false;
  if (!Conclude(step, status)) return RunHalves(step, rows);
  if (status.ok()) Deliver(step);
  return true;
}

StepPipeline::StartResult StepPipeline::Start(InFlightStep* step, const StepRows& rows) {
  step->running = rows;
  if (absl::Status fault = InjectStepFault(FaultPoint::kBeforeReplay, rows.rows); !fault.ok()) {
    FailStep(step, fault);
    return StartResult::kFailed;
  }
  const PlanCache::Found found = step->plans.Find(
      rows.bucket, rows.Needs(),
      [&](const Bucket& bucket) { return EstimatedSeconds(ShapeOf(rows.sequences, bucket)); });
  if (found.plan == nullptr) {
    observer_->OnNoPlan(*model_, found.lookup);
    // One row's requirements must not make other rows fail.
    if (rows.rows.size() > 1) return StartResult::kSplit;
    FailStep(step, NoPlanError(found.lookup));
    return StartResult::kFailed;
  }
  const Plan& plan = found.plan->plan();
  step->timing = {
      .plan = found.plan, .lookup = found.lookup, .shape = ShapeOf(rows.sequences, plan.bucket())};
  const MonoTime layout = clock_->Now();
  const absl::Status assigned = OrOutOfMemory([&] {
    step->slot->Assign(rows.rows, plan.bucket());
    return absl::OkStatus();
  });
  if (!assigned.ok()) {
    const bool split = rows.rows.size() > 1;
    records_.RecordOutcome(assigned, split);
    if (split) return StartResult::kSplit;
    FailStep(step, StepError(assigned));
    return StartResult::kFailed;
  }
  if (FaultsOn() && InjectIllegalAccess(Concerned(rows.rows))) step->slot->CorruptStep();
  step->timing.started = clock_->Now();
  step->timing.layout = step->timing.started - layout;
  step->slot->Start(plan);
  return StartResult::kStarted;
}

absl::Status StepPipeline::Await(InFlightStep* step) {
  StepTiming& timing = step->timing;
  // A backend that does not run steps ahead only works while the thread waits for it.
  timing.begin = runs_ahead() ? std::max(timing.started, device_free_) : clock_->Now();
  heartbeat_->BeginStep(AllowedTime(EstimatedSeconds(timing.shape)));
  const absl::Status fault = InjectStepFault(FaultPoint::kReplay, step->running.rows);
  const absl::Status status = step->slot->Finish();
  timing.end = device_free_ = clock_->Now();
  return fault.ok() ? status : fault;
}

// Decides the outcomes of the rows of a step that has ended, and requeues or finishes the rows.
// Returns false and leaves the rows in the step if it must run again in halves, because it did not
// fit into the device's memory.
bool StepPipeline::Conclude(InFlightStep* step, const absl::Status& status) {
  const StepRows& rows = step->running;
  StepTiming& timing = step->timing;
  const bool split = absl::IsResourceExhausted(status) && rows.rows.size() > 1;
  records_.RecordOutcome(status, split);
  if (split) return false;
  records_.RecordStep(*step);
  if (!status.ok()) {
    FailStep(step, StepError(status));
    return true;
  }
  step->trace = records_.TraceOf(*step);
  FailExpiredRows(step, absl::OkStatus(), timing.end);
  step->delivery.Collect(rows.rows, step->outcomes, timing.end, step->slot);
  for (RequestRow* row : rows.rows) {
    const bool by_model = row->drafts > 0 && row->draft_kind == DraftKind::kModel;
    if (by_model && prepared_.draft != nullptr) prepared_.draft->Prepare(row);
  }
  scorer_.EndStep(timing.end - timing.begin);
  timing.collected = clock_->Now();
  RequeueOrFinishRows(*step, /*succeeded=*/true);
  step->trace.deliver = clock_->Now() - timing.end;
  timing.plan->use().Record(step->trace);
  return true;
}

void StepPipeline::Deliver(InFlightStep* step) {
  const MonoTime begin = clock_->Now();
  InjectStepFault(FaultPoint::kDeliver, step->running.rows).IgnoreError();  // it only delays
  step->delivery.Send();
  step->trace.deliver += clock_->Now() - begin;
  observer_->OnBatch(step->trace);
}

std::optional<Bucket> StepPipeline::BucketOf(const BatchSize& size) const {
  MutexLock lock(&state_->mu);
  const Bucket* const bucket = state_->scheduler.scheduler().ladder()->Choose(size);
  return bucket == nullptr ? std::nullopt : std::optional(*bucket);
}

double StepPipeline::EstimatedSeconds(const StepShape& shape) const {
  MutexLock lock(&state_->mu);
  return state_->scheduler.scheduler().costs().Estimate(shape);
}

nanoseconds StepPipeline::AllowedTime(double estimated_seconds) const {
  const nanoseconds floor = std::chrono::microseconds(watchdog_.hang_us);
  const std::chrono::duration<double> estimate(estimated_seconds);
  // An estimate of more than an hour is not credible.
  const auto scaled =
      std::min<std::chrono::duration<double>>(watchdog_.factor * estimate, std::chrono::hours(1));
  return std::max(floor, std::chrono::duration_cast<nanoseconds>(scaled));
}

absl::Status StepPipeline::InjectStepFault(FaultPoint point,
                                           std::span<RequestRow* const> rows) const {
  return FaultsOn() ? InjectFault(point, Concerned(rows)) : absl::OkStatus();
}

void StepPipeline::FailStep(InFlightStep* step, const absl::Status& status) {
  FailExpiredRows(step, status, clock_->Now());
  RequeueOrFinishRows(*step, /*succeeded=*/false);
}

// Fails the requests of a failed step and requests whose deadline has passed. Marks rows whose
// results are not needed as dropped.
void StepPipeline::FailExpiredRows(InFlightStep* step, const absl::Status& status, MonoTime now) {
  MutexLock lock(&state_->mu);
  step->outcomes.clear();
  for (RequestRow* row : step->running.rows) {
    RowOutcome& outcome = step->outcomes.emplace_back(RowOutcome::kDropped);
    if (row->is_void()) continue;
    if (!status.ok()) {
      state_->requests.Fail(row->owner, status);
    } else if (row->deadline <= now) {
      state_->requests.Fail(
          row->owner, absl::DeadlineExceededError("the deadline passed while the request ran"));
    }
    if (row->owner->status.ok()) outcome = RowOutcome::kContinues;
  }
}

// Ends the part of a void row in a step: a rewound row runs again, another one is finished.
void StepPipeline::LeaveVoid(RequestRow* row) {
  if (row->state() == SequenceState::kRewound) {
    state_->scheduler.LeaveRewound(row);
  } else {
    state_->requests.Finish(row, /*computed=*/false);
  }
}

// Requeues or finishes each row.
void StepPipeline::RequeueOrFinishRows(const InFlightStep& step, bool succeeded) {
  MutexLock lock(&state_->mu);
  state_->requests.EndStep();
  if (succeeded) {
    state_->scheduler.Observe(step.timing.shape, Seconds(step.timing.Cost(runs_ahead())));
    state_->scheduler.ObserveWait(Seconds(step.timing.Wait()));
  }
  for (size_t i = 0; i < step.outcomes.size(); ++i) {
    RequestRow* const row = step.running.rows[i];
    const RowOutcome outcome = step.outcomes[i];
    if (row->is_void()) {
      LeaveVoid(row);
      continue;
    }
    ActiveRequest* const request = row->owner;
    if (outcome == RowOutcome::kNotFinite) {
      state_->requests.Fail(request, absl::InternalError(absl::StrCat(
                                         "logits of row ", row->index,
                                         " are not finite; check the model with sluice verify")));
    }
    if (outcome == RowOutcome::kNoMemory) state_->requests.Fail(request, OutOfMemoryError());
    if (request->status.ok()) scorer_.Take(row);
    if (outcome == RowOutcome::kContinues && request->status.ok()) {
      state_->requests.Requeue(row);
    } else {
      state_->requests.Finish(row, outcome == RowOutcome::kFinished);
    }
  }
}

}  // namespace sluice
