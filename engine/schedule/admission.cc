#include "engine/schedule/admission.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/reason.h"
#include "base/status_macros.h"

namespace sluice {
namespace {

// The maximum number of tokens in a forecast. Beyond it, the request is too late anyway.
constexpr double kMaxBetween = 1e12;

constexpr absl::string_view kRequestsOption = "engine.queue.max_requests";
constexpr absl::string_view kTokensOption = "engine.queue.max_tokens";
constexpr absl::string_view kBytesOption = "engine.queue.max_bytes";

// Above the memory of any machine.
constexpr int64_t kUnbounded = int64_t{1} << 50;

// The part of each limit of a level that deferred loads may use.
constexpr double kDeferredShare = 0.5;

// An hour is longer than any relevant deadline or wait.
constexpr double kMaxSeconds = 3600;

double SecondsOf(nanoseconds duration) { return std::chrono::duration<double>(duration).count(); }

// Returns the part of a limit that a level may use; at least 1.
int64_t Part(int64_t bound, double share) {
  return static_cast<int64_t>(std::ceil(static_cast<double>(bound) * share));
}

absl::Status TooLarge(absl::string_view bound, int64_t limit, absl::string_view unit,
                      int64_t wanted) {
  return ReasonError(Reason::kRequest,
                     absl::StrCat("the request takes ", wanted, " ", unit, "; the limit is ", limit,
                                  " (", bound, "). Send a smaller request"));
}

absl::Status Full(absl::string_view bound, int64_t limit, absl::string_view unit,
                  absl::string_view who) {
  return ReasonError(Reason::kQueueFull,
                     absl::StrCat("the queue is full for ", who, ", which may use ", limit, " ",
                                  unit, " (", bound, "); retry later"));
}

// Returns the cost of one step in which `sequences` sequences each generate a token, or of several
// steps if they do not fit in one.
double StepSeconds(int64_t sequences, int64_t context, const Scheduler& scheduler) {
  const Bucket& largest = scheduler.ladder()->largest();
  const int64_t most = std::min(largest.tokens, largest.sequences);
  const int32_t together = std::min(sequences, most);
  const Bucket* bucket =
      scheduler.ladder()->Choose({.tokens = together, .sequences = together, .longest = 1});
  const double seconds =
      scheduler.costs().Estimate({.bucket = bucket == nullptr ? largest : *bucket,
                                  .computed_tokens = together,
                                  .context_tokens = together * context,
                                  .distinct_positions = together,
                                  .sampled_rows = together,
                                  .distinct_adapters = scheduler.costs().AdaptersOf(together)});
  return seconds * static_cast<double>(sequences) / static_cast<double>(together);
}

}  // namespace

AdmissionBudget::AdmissionBudget(const QueueOptions& options)
    : options_([&options] {
        QueueOptions bounded = options;
        if (bounded.max_bytes == 0) bounded.max_bytes = kUnbounded;
        return bounded;
      }()) {}

AdmissionBudget::Bounds AdmissionBudget::BoundsOf(int priority) const {
  const double share = total_.requests == 0 ? 1 : LevelShare(priority);
  return {.requests = Part(options_.max_requests, share),
          .tokens = Part(options_.max_tokens, share),
          .bytes = Part(options_.max_bytes, share)};
}

AdmissionBudget::Bounds AdmissionBudget::DeferredBoundsOf(int priority) const {
  const Bounds bounds = BoundsOf(priority);
  return {.requests = Part(bounds.requests, kDeferredShare),
          .tokens = Part(bounds.tokens, kDeferredShare),
          .bytes = Part(bounds.bytes, kDeferredShare)};
}

bool AdmissionBudget::IsDeferrable(const RequestLoad& load) const {
  const Bounds most = DeferredBoundsOf(load.priority);
  return load.tokens <= most.tokens && load.bytes <= most.bytes;
}

double AdmissionBudget::LevelShare(int priority) const {
  SLUICE_CHECK(priority >= 1 && priority <= kPriorityLevels);
  return std::pow(options_.priority_share, priority - 1);
}

absl::Status AdmissionBudget::CheckRoom(const RequestLoad& load, const Bounds& used,
                                        const Bounds& most, absl::string_view part,
                                        absl::string_view who) {
  const auto full = [&](absl::string_view bound, int64_t limit, absl::string_view unit) {
    return Full(absl::StrCat(part, bound), limit, unit, who);
  };
  if (used.requests >= most.requests) return full(kRequestsOption, most.requests, "requests");
  if (load.tokens > most.tokens - used.tokens) return full(kTokensOption, most.tokens, "tokens");
  if (load.bytes > most.bytes - used.bytes) return full(kBytesOption, most.bytes, "bytes");
  return absl::OkStatus();
}

absl::Status AdmissionBudget::CheckTotal(const RequestLoad& load) const {
  return CheckRoom(load, total_, BoundsOf(load.priority), "",
                   absl::StrCat("priority ", load.priority));
}

absl::Status AdmissionBudget::CheckDeferred(const RequestLoad& load) const {
  return CheckRoom(load, deferred_, DeferredBoundsOf(load.priority), "half of ",
                   absl::StrCat("calls of priority ", load.priority, " that wait for room"));
}

absl::Status AdmissionBudget::CheckShare(const RequestLoad& load, const Bounds& own) const {
  const Bounds bounds = BoundsOf(load.priority);
  const double share = options_.max_caller_share;
  const auto exceeds = [share](int64_t of_caller, int64_t rest) {
    return static_cast<double>(of_caller) * (1 - share) > share * static_cast<double>(rest);
  };
  absl::string_view bound;
  if (exceeds(own.requests, bounds.requests - total_.requests - 1)) bound = kRequestsOption;
  if (exceeds(own.tokens, bounds.tokens - total_.tokens - load.tokens)) bound = kTokensOption;
  if (exceeds(own.bytes, bounds.bytes - total_.bytes - load.bytes)) bound = kBytesOption;
  if (bound.empty()) return absl::OkStatus();
  return ReasonError(
      Reason::kQueueFull,
      absl::StrCat("the requests of caller ", load.caller, " have reached their share of ", bound,
                   "; the rest is kept for other callers (engine.queue.max_caller_share). Retry "
                   "later"));
}

void AdmissionBudget::Add(const RequestLoad& load, int64_t sign, Bounds* total) {
  total->requests += sign;
  total->tokens += sign * load.tokens;
  total->bytes += sign * load.bytes;
  SLUICE_CHECK(total->requests >= 0 && total->tokens >= 0 && total->bytes >= 0);
}

void AdmissionBudget::CountCandidates(const RequestLoad& load, int64_t sign) {
  const auto count = [&](Bounds* bounds) {
    bounds->candidates += sign * load.candidates;
    bounds->of_level[load.priority - 1] += sign * load.candidates;
    SLUICE_CHECK(bounds->of_level[load.priority - 1] >= 0);
  };
  count(&total_);
  if (SharesAmongCallers(load)) count(&callers_.at(load.caller));
}

int64_t AdmissionBudget::CandidatesAhead(const RequestLoad& load) const {
  const auto up_to_level = [&](const Bounds& bounds) {
    return std::accumulate(bounds.of_level.begin(), bounds.of_level.begin() + load.priority,
                           int64_t{0});
  };
  const int64_t all = up_to_level(total_);
  if (!SharesAmongCallers(load)) return all;
  const auto own = callers_.find(load.caller);
  if (own == callers_.end()) return 0;
  return std::min(all, up_to_level(own->second) * std::ssize(callers_));
}

absl::Status AdmissionBudget::TakeRoom(const RequestLoad& load) {
  if (load.tokens > options_.max_tokens) {
    return TooLarge(kTokensOption, options_.max_tokens, "tokens", load.tokens);
  }
  if (load.bytes > options_.max_bytes) {
    return TooLarge(kBytesOption, options_.max_bytes, "bytes", load.bytes);
  }
  SLUICE_RETURN_IF_ERROR(CheckTotal(load));
  if (SharesAmongCallers(load)) {
    const auto own = callers_.find(load.caller);
    if (own != callers_.end()) SLUICE_RETURN_IF_ERROR(CheckShare(load, own->second));
    Add(load, 1, &callers_[load.caller]);
  }
  Add(load, 1, &total_);
  return absl::OkStatus();
}

absl::Status AdmissionBudget::Take(const RequestLoad& load) {
  SLUICE_RETURN_IF_ERROR(TakeRoom(load));
  CountCandidates(load, 1);
  return absl::OkStatus();
}

absl::Status AdmissionBudget::TakeDeferred(const RequestLoad& load) {
  SLUICE_RETURN_IF_ERROR(CheckDeferred(load));
  SLUICE_RETURN_IF_ERROR(TakeRoom(load));
  Add(load, 1, &deferred_);
  return absl::OkStatus();
}

void AdmissionBudget::Release(const RequestLoad& load) {
  Add(load, -1, &deferred_);
  CountCandidates(load, 1);
}

void AdmissionBudget::Return(const RequestLoad& load) {
  CountCandidates(load, -1);
  Add(load, -1, &total_);
  if (!SharesAmongCallers(load)) return;
  const auto own = callers_.find(load.caller);
  Add(load, -1, &own->second);
  if (own->second.requests == 0) callers_.erase(own);
}

nanoseconds TimeOfQueue(const DueTotals::Total& ahead, int64_t running, int64_t context,
                        const Scheduler& scheduler) {
  const SequenceQueue& queue = scheduler.queue();
  const Bucket& largest = scheduler.ladder()->largest();
  const int64_t steps = queue.later_steps();
  double seconds = scheduler.costs().EstimateDrain(ahead.tokens, largest);
  const int64_t places = std::min(largest.tokens, largest.sequences) - running;
  const int64_t waiting = queue.size() - queue.running();
  const int64_t without_place = ahead.sequences - std::max<int64_t>(places, 0);
  if (without_place > 0 && steps > 0) {
    const double part = static_cast<double>(without_place) / static_cast<double>(waiting);
    seconds += part * StepSeconds(steps, context, scheduler);
  }
  return std::chrono::duration_cast<nanoseconds>(
      std::chrono::duration<double>(std::min(seconds, kMaxSeconds)));
}

nanoseconds TimeNeeded(const Due& due, int64_t running, const Scheduler& scheduler) {
  const DueTotals::Total ahead = scheduler.queue().PromptsDueBy(due.deadline, due.priority);
  const int64_t together = due.steps > 0 ? running + ahead.sequences : 0;
  if (ahead.tokens + together == 0) return nanoseconds(0);
  const auto steps = static_cast<double>(due.steps);
  const double between = static_cast<double>(together) * steps * due.prompts_per_step;
  const double prompts = scheduler.costs().EstimateDrain(
      ahead.tokens + due.tokens + std::llround(std::min(between, kMaxBetween)),
      scheduler.ladder()->largest());
  const double later = steps * StepSeconds(together + due.rows, due.context, scheduler);
  return std::chrono::duration_cast<nanoseconds>(
      std::chrono::duration<double>(std::min(prompts + later, kMaxSeconds)));
}

double ForecastError::factor() const { return std::clamp(mean_ + 2 * deviation_, 0.25, 8.0); }

void ForecastError::Learn(const Lesson& lesson) {
  constexpr double kWeight = 1.0 / 64;
  constexpr double kMaxRatio = 8;
  const double needed = SecondsOf(lesson.needed), took = SecondsOf(lesson.took);
  double ratio = 1, deviation = kFirstDeviation;
  const bool near = needed > 0 && 2 * factor() * needed >= SecondsOf(lesson.allowed);
  if (near || lesson.missed) {
    ratio = needed > 0 ? std::min((lesson.missed ? 2 : 1) * took / needed, kMaxRatio) : kMaxRatio;
    deviation = std::abs(ratio - mean_);
  }
  mean_ += kWeight * (ratio - mean_);
  deviation_ += kWeight * (deviation - deviation_);
}

}  // namespace sluice
