#include "engine/runner/requests/admission_control.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/option_value.h"
#include "base/reason.h"
#include "base/status_macros.h"
#include "engine/runner/requests/active_request.h"

namespace sluice {
namespace {

// Every row must fit the model's positions, and therefore the largest bucket. If `only_length` is
// not 0, every row must have exactly this length.
absl::Status CheckLengths(const Request& request, int64_t max_positions, int64_t only_length) {
  for (int32_t row = 0; row < request.rows(); ++row) {
    const int32_t length = request.spec->lengths[row];
    if (length > max_positions) {
      return ReasonError(Reason::kInput,
                         absl::StrCat("row ", row, " has ", length, " tokens; expected 1 to ",
                                      max_positions, " (the model's max_positions)"));
    }
    if (only_length > 0 && length != only_length) {
      return ReasonError(Reason::kInput,
                         absl::StrCat("row ", row, " has ", length, " tokens; expected exactly ",
                                      only_length, ", as in every row of this model"));
    }
  }
  return absl::OkStatus();
}

absl::Status UnreachableError() {
  return ReasonError(Reason::kDeadlineUnreachable,
                     "by the forecast, the answer would not be complete before the deadline; retry "
                     "later, or set a later deadline");
}

absl::Status TooLongError(nanoseconds max_wait, int priority) {
  return ReasonError(
      Reason::kQueueFull,
      absl::StrCat(
          "the request would wait too long: engine.queue.max_wait of ",
          FormatQuantity(std::chrono::duration_cast<std::chrono::microseconds>(max_wait).count(),
                         Unit::kMicroseconds),
          " is reached for priority ", priority, " or for this caller; retry later"));
}

}  // namespace

absl::Status HungError() {
  return ReasonError(Reason::kHung, "the model's device does not answer; retry at another replica");
}

absl::Status AdmissionControl::Closed() const {
  if (hung_) return HungError();
  if (draining_) return ReasonError(Reason::kDraining, "the model is draining");
  return absl::OkStatus();
}

absl::Status AdmissionControl::Examine(const Request& request, int64_t max_positions, MonoTime now,
                                       int64_t only_length) {
  SLUICE_RETURN_IF_ERROR(CheckLengths(request, max_positions, only_length));
  if (request.deadline > now) return absl::OkStatus();
  return ReasonError(Reason::kDeadline, "the deadline passed before the request was queued");
}

absl::Status AdmissionControl::Reserve(const Request& request, const RequestLoad& load,
                                       const Scheduler& scheduler, int64_t running, MonoTime now,
                                       nanoseconds* needed) {
  SLUICE_RETURN_IF_ERROR(Closed());
  if (request.deadline != MonoTime::max() && OutOfReach(request, scheduler, running, now, needed)) {
    return UnreachableError();
  }
  const nanoseconds allowed = request.deadline - now;
  absl::Status& standing = standing_[load.priority - 1];
  bool all_wait = false;
  if (WaitsTooLong(load, allowed, running, scheduler, &all_wait)) {
    absl::Status status = TooLongError(max_wait_, load.priority);
    if (all_wait) standing = status;
    return status;
  }
  absl::Status taken = budget_.Take(load);
  if (absl::IsResourceExhausted(taken) && budget_.IsFull(load.priority)) standing = taken;
  return taken;
}

absl::Status AdmissionControl::Standing(int priority, nanoseconds allowed) const {
  // A request with an earlier deadline is judged separately. Reasons that end every request have
  // another code.
  if (allowed <= max_wait_ || !Closed().ok()) return absl::OkStatus();
  return standing_[priority - 1];
}

bool AdmissionControl::WaitsTooLong(const RequestLoad& load, nanoseconds allowed, int64_t running,
                                    const Scheduler& scheduler, bool* all_do) const {
  if (max_wait_ == nanoseconds(0)) return false;
  const double bound = budget_.LevelShare(load.priority) * Seconds(max_wait_);
  if (Seconds(allowed) <= bound) return false;
  const double wait = Seconds(Wait(running, scheduler));
  *all_do = wait > bound;
  return *all_do || budget_.ExceedsShare(load, budget_.PartOf(load) * wait, bound - wait);
}

bool AdmissionControl::OutOfReach(const Request& request, const Scheduler& scheduler,
                                  int64_t running, MonoTime now, nanoseconds* needed) const {
  const auto rows = std::ssize(request.spec->lengths);
  const auto tokens = std::ssize(request.tokens);
  const int64_t steps = LaterSteps(request.spec->max_tokens);
  const Due due{.deadline = request.deadline,
                .priority = request.spec->priority,
                .rows = rows,
                .tokens = reuses_prefixes_ ? rows : tokens,
                .steps = steps,
                .context = ReachOf(request.spec->model->config)
                               .ContextOf(std::max<int64_t>(tokens / rows + steps / 2 - 1, 0), 1),
                .prompts_per_step = mean_prompt_ / std::max(mean_steps_, 1.0)};
  *needed = TimeNeeded(due, running, scheduler);
  if (const int64_t own = WantedCandidates(request); own > 0) {
    *needed += TimeOfScores(own + budget_.candidates());
  }
  const std::chrono::duration<double> forecast(*needed);
  return forecast_error_.factor() * forecast > request.deadline - now;
}

void AdmissionControl::Learn(const ScoredCandidates& scored) {
  constexpr double kWeight = 1.0 / 16;
  const double seconds = Seconds(scored.duration) / static_cast<double>(scored.count);
  const bool first = seconds_per_candidate_ == 0;
  seconds_per_candidate_ += (first ? 1 : kWeight) * (seconds - seconds_per_candidate_);
}

nanoseconds AdmissionControl::TimeOfScores(int64_t count) const {
  return nanoseconds(std::llround(1e9 * seconds_per_candidate_ * static_cast<double>(count)));
}

nanoseconds AdmissionControl::Wait(int64_t running, const Scheduler& scheduler) const {
  return TimeOfQueue(running, std::llround(mean_context_), scheduler) +
         TimeOfScores(budget_.candidates());
}

void AdmissionControl::Learn(const Outcome& outcome) {
  const bool missed = absl::IsDeadlineExceeded(outcome.status);
  if (outcome.deadline == MonoTime::max() || !(outcome.status.ok() || missed)) return;
  forecast_error_.Learn({.needed = outcome.needed,
                         .allowed = outcome.deadline - outcome.queued,
                         .took = std::min(outcome.ended, outcome.deadline) - outcome.queued,
                         .missed = missed});
}

void AdmissionControl::Learn(const GeneratedRow& row) {
  constexpr double kWeight = 1.0 / 32;
  const auto steps = static_cast<double>(std::max<int64_t>(row.tokens - 1, 0));
  const auto most = static_cast<double>(row.most_tokens - 1);
  generated_share_ += kWeight * (steps / most - generated_share_);
  mean_steps_ += kWeight * (steps - mean_steps_);
  mean_context_ += kWeight * (static_cast<double>(row.context) - mean_context_);
  mean_prompt_ += kWeight * (static_cast<double>(row.computed_prompt) - mean_prompt_);
}

int64_t AdmissionControl::LaterSteps(int32_t most_tokens) const {
  return std::lround(generated_share_ * std::max(most_tokens - 1, 0));
}

}  // namespace sluice
