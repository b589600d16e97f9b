#include "engine/runner/model_runner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/reason.h"

namespace sluice {
namespace {

void CheckInvariants(const Request& request) {
  SLUICE_CHECK(request.rows() >= 1);
  SLUICE_CHECK(request.priority >= 1 && request.priority <= kPriorityLevels);
  SLUICE_CHECK(request.max_tokens >= 0 && request.num_top >= 0);
  int64_t tokens = 0;
  for (int32_t length : request.lengths) {
    SLUICE_CHECK(length >= 1);
    tokens += length;
  }
  SLUICE_CHECK(tokens == static_cast<int64_t>(request.tokens.size()));
  const int64_t width = request.model->config.input_width;
  SLUICE_CHECK(request.inputs.empty() ||
               static_cast<int64_t>(request.inputs.size()) == tokens * width);
}

// Of a row's last step. The last token that it may generate is never computed.
size_t MostPagesOf(const Row& row, int32_t page_tokens) {
  const int32_t positions = row.prompt_length + std::max(row.max_generated - 1, 0);
  return static_cast<size_t>((positions + page_tokens - 1) / page_tokens);
}

// Every row must fit the model's positions, and so the largest bucket.
absl::Status CheckLengths(const Request& request, int64_t max_positions) {
  for (int32_t row = 0; row < request.rows(); ++row) {
    const int32_t length = request.lengths[static_cast<size_t>(row)];
    if (length > max_positions) {
      return absl::InvalidArgumentError(absl::StrCat(
          "row ", row, " has ", length, " tokens, more than the model's limit of ", max_positions));
    }
  }
  return absl::OkStatus();
}

absl::Status UnreachableError() {
  return WithReason(
      absl::ResourceExhaustedError(
          "the deadline would pass in the queue, behind requests that are due earlier"),
      RejectionName(Rejection::kDeadlineUnreachable).data());
}

absl::Status MeetRequestFault(FaultPoint point, const std::string& id) {
  if (!FaultsOn()) return absl::OkStatus();
  return MeetFault(point, [&id](std::string_view named) { return named == id; });
}

}  // namespace

absl::Status HungError() {
  return WithReason(absl::UnavailableError("the model's device does not answer any more"),
                    RejectionName(Rejection::kHung).data());
}

ModelRunner::ModelRunner(RequestId first_id, std::shared_ptr<const Model> model,
                         PreparedModel prepared, const EngineOptions& options,
                         const BackendInfo& info, Clock* clock, Observer* observer,
                         SchedulerObserver* journal)
    : model_(std::move(model)),
      row_multiple_(info.row_multiple),
      watchdog_(options.watchdog),
      clock_(clock),
      observer_(observer),
      prepared_(std::move(prepared)),
      last_id_(first_id),
      budget_(options.queue),
      scheduler_(options.batch, prepared_.kv,
                 std::chrono::microseconds(options.ladder.review.half_life_us), prepared_.ladder,
                 prepared_.costs, journal),
      history_(static_cast<size_t>(options.history.requests)) {
  const auto sequences = static_cast<size_t>(prepared_.ladder->max_sequences());
  flights_.reserve(prepared_.slots.size());  // pointers to them stay valid
  for (const std::unique_ptr<ExecutionSlot>& slot : prepared_.slots) {
    flights_.emplace_back(slot.get(), prepared_.plans.get(), sequences);
  }
  under_way_.reserve(flights_.size());
  thread_ = std::thread([this] { Run(); });
}

ModelRunner::Flight::Flight(ExecutionSlot* of_slot, const PlanCache* cache, size_t most_sequences)
    : slot(of_slot), plans(cache), delivery(most_sequences) {
  sequences.reserve(most_sequences);
  rows.reserve(most_sequences);
}

absl::Status ModelRunner::Refuse(const Refusal& refusal) {
  observer_->OnRejected(model_->name, refusal.reason);
  return refusal.status;
}

absl::StatusOr<RequestId> ModelRunner::Submit(Request request, std::shared_ptr<Sink> sink,
                                              MonoTime received) {
  CheckInvariants(request);
  if (absl::Status fault = MeetRequestFault(FaultPoint::kAdmit, request.id); !fault.ok()) {
    return Refuse({Rejection::kQueueFull, std::move(fault)});
  }
  const MonoTime now = clock_->Now();
  const RequestLoad load = LoadOf(request);
  nanoseconds needed(0);
  Refusal refusal = Examine(request, now);
  // Before anything is allocated in proportion to its tokens.
  if (refusal.status.ok()) refusal = Reserve(request, load, now, &needed);
  if (!refusal.status.ok()) return Refuse(refusal);
  auto active = std::make_unique<ActiveRequest>(std::move(request), std::move(sink), received, now);
  active->needed = needed;
  for (Row& row : active->rows) row.kv.ids.reserve(MostPagesOf(row, prepared_.kv.page_tokens));
  absl::Status fault = MeetRequestFault(FaultPoint::kQueue, active->request.id);
  {
    MutexLock lock(&mu_);
    refusal = fault.ok() ? Closed() : Refusal{Rejection::kQueueFull, std::move(fault)};
    if (refusal.status.ok()) return Admit(std::move(active));
    budget_.Return(load);
  }
  return Refuse(refusal);
}

ModelRunner::Refusal ModelRunner::Examine(const Request& request, MonoTime now) const {
  absl::Status fits = CheckLengths(request, model_->config.max_positions);
  if (!fits.ok()) return {Rejection::kTooLarge, std::move(fits)};
  if (request.deadline > now) return {};
  return {Rejection::kDeadline,
          absl::DeadlineExceededError("the deadline passed before the request was queued")};
}

ModelRunner::Refusal ModelRunner::Reserve(const Request& request, const RequestLoad& load,
                                          MonoTime now, nanoseconds* needed) {
  MutexLock lock(&mu_);
  if (Refusal closed = Closed(); !closed.status.ok()) return closed;
  if (request.deadline != MonoTime::max() && OutOfReach(request, now, needed)) {
    return {Rejection::kDeadlineUnreachable, UnreachableError()};
  }
  absl::Status taken = budget_.Take(load);
  const bool too_large = absl::IsInvalidArgument(taken);
  return {too_large ? Rejection::kTooLarge : Rejection::kQueueFull, std::move(taken)};
}

bool ModelRunner::OutOfReach(const Request& request, MonoTime now, nanoseconds* needed) const {
  // Of what may be cached, the last token of each row is all that is sure to be computed.
  const bool cached = prepared_.kv.keeps_pages && prepared_.kv.prefix_reuse;
  const auto rows = static_cast<int64_t>(request.lengths.size());
  const auto tokens = static_cast<int64_t>(request.tokens.size());
  const int64_t steps = LaterSteps(request.max_tokens);
  const Due due{.deadline = request.deadline,
                .priority = request.priority,
                .rows = rows,
                .tokens = cached ? rows : tokens,
                .steps = steps,
                .context = tokens / rows + steps / 2,
                .prompts_per_step = mean_prompt_ / std::max(mean_steps_, 1.0)};
  *needed = TimeNeeded(due, Running(), scheduler_.scheduler());
  const std::chrono::duration<double> forecast(*needed);
  return forecast_error_.factor() * forecast > request.deadline - now;
}

void ModelRunner::LearnForecast(const ActiveRequest& request) {
  const bool missed = absl::IsDeadlineExceeded(request.status);
  const MonoTime deadline = request.request.deadline, begin = request.trace.queued;
  if (deadline == MonoTime::max() || !(request.status.ok() || missed)) return;
  forecast_error_.Learn({.needed = request.needed,
                         .allowed = deadline - begin,
                         .took = std::min(clock_->Now(), deadline) - begin,
                         .missed = missed});
}

int64_t ModelRunner::Running() const {
  return stepping_sequences_ + static_cast<int64_t>(queue().running());
}

ModelRunner::Refusal ModelRunner::Closed() const {
  if (hung_) return {Rejection::kHung, HungError()};
  if (draining_) return {Rejection::kDraining, absl::UnavailableError("the model is draining")};
  return {};
}

RequestId ModelRunner::Admit(std::unique_ptr<ActiveRequest> active) {
  active->id = ++last_id_;
  observer_->OnAdmitted(active->request);
  for (Row& row : active->rows) {
    row.ticket = ++last_ticket_;
    row.expected_steps = 1 + static_cast<int32_t>(LaterSteps(row.max_generated));
    scheduler_.Arrive(&row);
    CountWork(&row);
  }
  const RequestId id = active->id;
  requests_.emplace(id, std::move(active));
  wake_.Signal();
  return id;
}

void ModelRunner::Cancel(RequestId id) {
  MutexLock lock(&mu_);
  const auto it = requests_.find(id);
  if (it == requests_.end()) return;
  Fail(it->second.get(), absl::CancelledError("cancelled by the caller"));
  wake_.Signal();
}

void ModelRunner::Fail(ActiveRequest* request, const absl::Status& status) {
  if (!request->status.ok()) return;
  request->status = status;
  for (Row& row : request->rows) {
    if (row.state != Row::State::kWaiting) continue;
    scheduler_.Remove(&row);
    RowDone(&row);
  }
}

int64_t ModelRunner::LaterSteps(int32_t most_tokens) const {
  return std::lround(generated_share_ * std::max(most_tokens - 1, 0));
}

void ModelRunner::LearnSteps(const Row& row) {
  if (!row.generates) return;
  constexpr double kWeight = 1.0 / 32;
  const double steps = std::max(row.generated - 1, 0);
  generated_share_ += kWeight * (steps / (row.max_generated - 1) - generated_share_);
  mean_steps_ += kWeight * (steps - mean_steps_);
  mean_prompt_ += kWeight * (row.prompt_length - row.reused_tokens - mean_prompt_);
}

void ModelRunner::CountWork(Row* row) {
  work_tokens_ -= row->work;
  const int64_t steps = std::max(row->max_generated - row->generated, 1);
  const int64_t length = row->length();
  // One token in each step after the next, or the whole of it once more.
  row->work = prepared_.kv.keeps_pages ? length - row->first_position + steps - 1
                                       : steps * length + steps * (steps - 1) / 2;
  work_tokens_ += row->work;
}

void ModelRunner::RowDone(Row* row) {
  row->state = Row::State::kDone;
  work_tokens_ -= row->work;
  ActiveRequest* const request = row->owner;
  if (--request->rows_left > 0) return;
  if (request->began) --running_requests_;
  budget_.Return(request->load);
  LearnForecast(*request);
  const auto it = requests_.find(request->id);
  ended_.push_back(std::move(it->second));
  requests_.erase(it);
}

void ModelRunner::SetLadder(std::shared_ptr<const Ladder> ladder) {
  MutexLock lock(&mu_);
  scheduler_.SetLadder(std::move(ladder));
  wake_.Signal();
}

void ModelRunner::LetGoOfPlans() {
  MutexLock lock(&mu_);
  wake_.Signal();
}

}  // namespace sluice
