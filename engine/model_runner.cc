#include "engine/model_runner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/check.h"

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

}  // namespace

ModelRunner::ModelRunner(RequestId first_id, std::shared_ptr<const Model> model,
                         PreparedModel prepared, const EngineOptions& options,
                         const BackendInfo& info, Clock* clock, Observer* observer,
                         SchedulerObserver* journal)
    : model_(std::move(model)),
      row_multiple_(info.row_multiple),
      clock_(clock),
      observer_(observer),
      prepared_(std::move(prepared)),
      last_id_(first_id),
      budget_(options.queue),
      scheduler_(options.batch, prepared_.kv,
                 std::chrono::microseconds(options.ladder.review.half_life_us), prepared_.ladder,
                 prepared_.costs, journal),
      history_(static_cast<size_t>(options.history.requests)),
      plans_(prepared_.plans.get()) {
  const auto sequences = static_cast<size_t>(prepared_.ladder->max_sequences());
  batch_.reserve(sequences);
  running_.reserve(sequences);
  delivery_.tokens.reserve(sequences);
  thread_ = std::thread([this] { Run(); });
}

void ModelRunner::Stop() {
  if (!thread_.joinable()) return;
  StopAdmission();
  AwaitIdle(clock_->Now());
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    wake_.Signal();
  }
  thread_.join();
}

absl::Status ModelRunner::Refuse(Rejection reason, absl::Status status) {
  observer_->OnRejected(model_->name, reason);
  return status;
}

absl::StatusOr<RequestId> ModelRunner::Submit(Request request, std::shared_ptr<Sink> sink,
                                              MonoTime received) {
  CheckInvariants(request);
  absl::Status fits = CheckLengths(request, model_->config.max_positions);
  if (!fits.ok()) return Refuse(Rejection::kTooLarge, std::move(fits));
  const MonoTime now = clock_->Now();
  if (request.deadline <= now) {
    return Refuse(Rejection::kDeadline,
                  absl::DeadlineExceededError("the deadline passed before the request was queued"));
  }
  // Before anything is allocated in proportion to its tokens.
  const int64_t tokens = QueuedTokens(request);
  if (absl::Status status = TakeBudget(tokens); !status.ok()) {
    return Refuse(Rejection::kQueueFull, std::move(status));
  }
  auto active = std::make_unique<ActiveRequest>(std::move(request), std::move(sink), received, now);
  for (Row& row : active->rows) row.kv.ids.reserve(MostPagesOf(row, prepared_.kv.page_tokens));
  {
    MutexLock lock(&mu_);
    if (!draining_) return Admit(std::move(active));
    budget_.Return(tokens);
  }
  return Refuse(Rejection::kDraining, absl::UnavailableError("the model is draining"));
}

absl::Status ModelRunner::TakeBudget(int64_t tokens) {
  MutexLock lock(&mu_);
  return budget_.Take(tokens);
}

RequestId ModelRunner::Admit(std::unique_ptr<ActiveRequest> active) {
  active->id = ++last_id_;
  observer_->OnAdmitted(active->request);
  bytes_ += active->bytes();
  for (Row& row : active->rows) {
    row.ticket = ++last_ticket_;
    row.expected_steps = ExpectedSteps(row);
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

int32_t ModelRunner::ExpectedSteps(const Row& row) const {
  const int32_t after_first = std::max(row.max_generated - 1, 0);
  return 1 + static_cast<int32_t>(std::lround(generated_share_ * after_first));
}

void ModelRunner::LearnSteps(const Row& row) {
  if (!row.generates) return;
  constexpr double kWeight = 1.0 / 32;
  const double share =
      static_cast<double>(std::max(row.generated - 1, 0)) / (row.max_generated - 1);
  generated_share_ += kWeight * (share - generated_share_);
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
  budget_.Return(QueuedTokens(request->request));
  bytes_ -= request->bytes();
  const auto it = requests_.find(request->id);
  ended_.push_back(std::move(it->second));
  requests_.erase(it);
}

void ModelRunner::StopAdmission() {
  MutexLock lock(&mu_);
  draining_ = true;
  wake_.Signal();
}

void ModelRunner::AwaitIdle(MonoTime deadline) {
  MutexLock lock(&mu_);
  while (!requests_.empty() || !ended_.empty() || ending_) {
    if (clock_->Now() >= deadline) break;
    clock_->WaitUntil(&idle_, &mu_, deadline);
  }
  std::vector<ActiveRequest*> left;
  for (const auto& [id, request] : requests_) left.push_back(request.get());
  for (ActiveRequest* request : left) {
    Fail(request, absl::UnavailableError("the server is shutting down"));
  }
  wake_.Signal();
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
