#include "engine/schedule/admission_control.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/option_value.h"
#include "base/reason.h"
#include "base/status_macros.h"

namespace sluice {
namespace {

// A request enters the backlog only if its forecast, times this factor, ends before its deadline.
// The share of the device that the backlog has may fall while the request waits.
constexpr double kDeferMargin = 1.5;

std::string DurationText(nanoseconds duration) {
  return FormatQuantity(std::chrono::duration_cast<std::chrono::microseconds>(duration).count(),
                        Unit::kMicroseconds);
}

// `of_priority` is the part of `max_wait` that requests of the priority may use.
absl::Status TooLongError(nanoseconds max_wait, int priority, nanoseconds of_priority) {
  return ReasonError(
      Reason::kQueueFull,
      absl::StrCat("the request would wait for longer than engine.queue.max_wait, ",
                   DurationText(max_wait), ", allows: ", DurationText(of_priority), " at priority ",
                   priority,
                   ", and less for a caller whose other requests wait too; set a deadline until "
                   "which the call may wait, retry later, or raise engine.queue.max_wait"));
}

// The backlog fills the queue to this part of the wait that it allows, or to enough work that the
// fixed cost of a step is at most 5 % of it. More would take room from requests that arrive during
// the next step.
constexpr double kFillShare = 1.0 / 32;
constexpr double kFixedCosts = 20;

}  // namespace

absl::Status UnreachableError() {
  return ReasonError(Reason::kDeadlineUnreachable,
                     "by the forecast, the answer would not be complete before the deadline; retry "
                     "later, or set a later deadline");
}

absl::Status HungError() {
  return ReasonError(Reason::kHung, "the model's device does not answer; retry at another replica");
}

absl::Status AdmissionControl::Closed() const {
  if (hung_) return HungError();
  if (draining_) return ReasonError(Reason::kDraining, "the model is draining");
  return absl::OkStatus();
}

Admission AdmissionControl::Reserve(const Applicant& applicant, const Scheduler& scheduler,
                                    int64_t running, MonoTime now) {
  Admission decision{.refusal = Closed()};
  if (!decision.refusal.ok()) return decision;
  const bool dated = applicant.deadline != MonoTime::max();
  if (dated && OutOfReach(applicant, scheduler, running, now, &decision.needed)) {
    decision.refusal = UnreachableError();
    return decision;
  }
  const RequestLoad& load = applicant.load;
  const nanoseconds allowed = applicant.deadline - now;
  bool all_wait = false;
  const bool waits = WaitsTooLong(applicant, running, scheduler, now, &all_wait);
  const bool patient = dated && max_wait_ > nanoseconds(0) && allowed > MaxWait(load.priority) &&
                       options_.defers && budget_.IsDeferrable(load);
  const bool after_next =
      patient && !backlog_.empty() && backlog_.Next().deadline <= applicant.deadline;
  if (patient && (waits || after_next)) {
    decision.gives_place = !waits && after_next;
    decision.refusal = TakeDeferred(applicant, scheduler, decision.needed, now, all_wait);
    decision.deferred = decision.refusal.ok();
    return decision;
  }
  StandingRefusals& standing = standing_[load.priority - 1];
  if (waits) {
    decision.refusal = TooLongError(max_wait_, load.priority, MaxWait(load.priority));
    if (all_wait) {
      standing.undated = decision.refusal;
      standing.undated_caller = applicant.caller;
    }
    return decision;
  }
  decision.refusal = budget_.Take(load);
  if (absl::IsResourceExhausted(decision.refusal) && budget_.IsFull(load.priority)) {
    standing.any = decision.refusal;
  }
  return decision;
}

absl::Status AdmissionControl::TakeDeferred(const Applicant& applicant, const Scheduler& scheduler,
                                            nanoseconds needed, MonoTime now, bool all_wait) {
  const RequestLoad& load = applicant.load;
  const nanoseconds allowed = applicant.deadline - now;
  const nanoseconds wait =
      MaxWait(load.priority) + backlog_.TimeUntil(EntryOf(applicant, scheduler, needed), now);
  const auto exceeds = [&](nanoseconds time) {
    return kDeferMargin * Seconds(time) > Seconds(allowed);
  };
  const bool late = exceeds(wait + needed);
  absl::Status refusal = late ? UnreachableError() : budget_.TakeDeferred(load);
  // Another request may need less time and less room.
  const bool holds = late ? exceeds(wait) : !refusal.ok() && budget_.DeferredIsFull(load.priority);
  if (!all_wait || !holds) return refusal;
  StandingRefusals& standing = standing_[load.priority - 1];
  // The forecast depends on the caller's own requests.
  const bool same = !standing.patient.ok() && standing.patient_caller == applicant.caller;
  if (same && allowed < standing.patience) return refusal;
  standing.patient = refusal;
  standing.patient_caller = applicant.caller;
  standing.patience = allowed;
  // Requests that are due earlier wait less in the backlog, but count in its number of requests.
  standing.patient_from = late ? applicant.deadline : MonoTime::min();
  return refusal;
}

Backlog::Entry AdmissionControl::EntryOf(const Applicant& applicant, const Scheduler& scheduler,
                                         nanoseconds needed) const {
  const int64_t tokens =
      applicant.prompt_tokens + applicant.rows * LaterSteps(applicant.max_tokens);
  return {.load = applicant.load,
          .deadline = applicant.deadline,
          .caller = applicant.caller,
          .rows = applicant.rows,
          .service = scheduler.ServiceOf(tokens) + TimeOfScores(applicant.load.candidates),
          .needed = needed};
}

void AdmissionControl::Defer(uint64_t id, const Applicant& applicant, const Scheduler& scheduler,
                             const Admission& decision, MonoTime now) {
  Backlog::Entry entry = EntryOf(applicant, scheduler, decision.needed);
  entry.id = id;
  backlog_.Add(entry, now);
}

AdmissionControl::Taken AdmissionControl::TakeNext(const Scheduler& scheduler, int64_t running,
                                                   MonoTime now) {
  const Backlog::Entry entry = backlog_.TakeNext(now);
  // Before Release, its own candidates are not ahead of it.
  const nanoseconds wait = WaitOf(entry.load, entry.caller, running, scheduler, now);
  budget_.Release(entry.load);
  Reconsider();
  return {.id = entry.id, .reachable = wait + entry.needed <= entry.deadline - now};
}

void AdmissionControl::Leave(uint64_t id) {
  if (const auto entry = backlog_.Remove(id)) budget_.Release(entry->load);
}

bool AdmissionControl::HasRoomForNext(const Scheduler& scheduler, int64_t running,
                                      MonoTime now) const {
  if (backlog_.empty()) return false;
  const Backlog::Entry& next = backlog_.Next();
  const int priority = next.load.priority;
  if (scheduler.PromptsAhead(next.caller, priority, now).tokens >=
      scheduler.ladder()->largest().tokens) {
    return false;
  }
  const double fixed =
      scheduler.costs().Estimate({.bucket = scheduler.ladder()->buckets().front()});
  const double bound = Seconds(MaxWait(priority));
  return Seconds(WaitOf(next.load, next.caller, running, scheduler, now)) <=
         std::min(bound, std::max(kFillShare * bound, kFixedCosts * fixed));
}

nanoseconds AdmissionControl::MaxWait(int priority) const {
  return nanoseconds(
      std::llround(budget_.LevelShare(priority) * static_cast<double>(max_wait_.count())));
}

absl::Status AdmissionControl::Standing(uint32_t caller, int priority, MonoTime deadline,
                                        MonoTime now) const {
  // A request with an earlier deadline is judged separately. Reasons that end every request have
  // another code.
  if (deadline - now <= max_wait_ || !Closed().ok()) return absl::OkStatus();
  const StandingRefusals& standing = standing_[priority - 1];
  if (!standing.any.ok()) return standing.any;
  if (deadline == MonoTime::max()) {
    return caller == standing.undated_caller ? standing.undated : absl::OkStatus();
  }
  const bool covered = caller == standing.patient_caller && deadline >= standing.patient_from &&
                       deadline - now <= standing.patience;
  return covered ? standing.patient : absl::OkStatus();
}

bool AdmissionControl::WaitsTooLong(const Applicant& applicant, int64_t running,
                                    const Scheduler& scheduler, MonoTime now, bool* all_do) const {
  if (max_wait_ == nanoseconds(0)) return false;
  const RequestLoad& load = applicant.load;
  const double bound = Seconds(MaxWait(load.priority));
  if (Seconds(applicant.deadline - now) <= bound) return false;
  const double wait = Seconds(WaitOf(load, applicant.caller, running, scheduler, now));
  // The candidates ahead of an identified caller depend on its own requests.
  const bool too_long = wait > budget_.WaitShare(load) * bound;
  *all_do = too_long && (load.caller.empty() || budget_.candidates() == 0);
  return too_long;
}

bool AdmissionControl::OutOfReach(const Applicant& applicant, const Scheduler& scheduler,
                                  int64_t running, MonoTime now, nanoseconds* needed) const {
  const int64_t rows = applicant.rows, tokens = applicant.prompt_tokens;
  const int64_t steps = LaterSteps(applicant.max_tokens);
  const Due due{
      .deadline = applicant.deadline,
      .priority = applicant.load.priority,
      .rows = rows,
      .tokens = options_.reuses_prefixes ? rows : tokens,
      .steps = steps,
      .context = applicant.reach.ContextOf(std::max<int64_t>(tokens / rows + steps / 2 - 1, 0), 1),
      .prompts_per_step = mean_prompt_ / std::max(mean_steps_, 1.0)};
  *needed = TimeNeeded(due, running, scheduler);
  if (const int64_t own = applicant.load.candidates; own > 0) {
    *needed += TimeOfScores(own + budget_.CandidatesAhead(applicant.load));
  }
  const std::chrono::duration<double> forecast(*needed);
  return forecast_error_.factor() * forecast > applicant.deadline - now;
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

nanoseconds AdmissionControl::WaitOf(const RequestLoad& load, uint32_t caller, int64_t running,
                                     const Scheduler& scheduler, MonoTime now) const {
  return TimeOfQueue(scheduler.PromptsAhead(caller, load.priority, now), running,
                     std::llround(mean_context_), scheduler) +
         TimeOfScores(budget_.CandidatesAhead(load));
}

nanoseconds AdmissionControl::Wait(int64_t running, const Scheduler& scheduler) const {
  return TimeOfQueue(scheduler.queue().Prompts(), running, std::llround(mean_context_), scheduler) +
         TimeOfScores(budget_.candidates());
}

void AdmissionControl::Learn(const Outcome& outcome) {
  const bool missed = absl::IsDeadlineExceeded(outcome.status);
  if (outcome.deadline == MonoTime::max() || !(outcome.status.ok() || missed)) return;
  // The end of a deferred request depends on later requests. Like every request with time left, it
  // lets the factor return to its first value.
  if (outcome.admission.deferred) {
    if (!missed) forecast_error_.Learn({});
    return;
  }
  forecast_error_.Learn({.needed = outcome.admission.needed,
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
