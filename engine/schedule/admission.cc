#include "engine/schedule/admission.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace sluice {
namespace {

// The most tokens that a forecast looks at; beyond, it is too late anyway.
constexpr double kMostBetween = 1e12;

double SecondsOf(nanoseconds duration) { return std::chrono::duration<double>(duration).count(); }

// Returns the part of a bound that a level may fill; at least 1.
int64_t Part(int64_t bound, double share) {
  return static_cast<int64_t>(std::ceil(static_cast<double>(bound) * share));
}

absl::Status TooLarge(absl::string_view bound, int64_t limit, absl::string_view unit,
                      int64_t wanted) {
  return absl::InvalidArgumentError(absl::StrCat("the request takes ", wanted, " ", unit,
                                                 ", more than queue.", bound, " of ", limit));
}

absl::Status Full(absl::string_view bound, int64_t limit, absl::string_view unit, int priority) {
  return absl::ResourceExhaustedError(absl::StrCat("queue.", bound, " of ", limit, " ", unit,
                                                   " reached for requests of priority ", priority));
}

// Returns the cost of a step in which so many sequences generate a token each, or of several steps
// if they are too many for one.
double StepSeconds(int64_t sequences, int64_t context, const Scheduler& scheduler) {
  const Bucket& largest = scheduler.ladder()->largest();
  const int64_t most = std::min(largest.tokens, largest.sequences);
  const int32_t riding = std::min(sequences, most);
  const Bucket* bucket =
      scheduler.ladder()->Choose({.tokens = riding, .sequences = riding, .longest = 1});
  const double seconds =
      scheduler.costs().Estimate({.bucket = bucket == nullptr ? largest : *bucket,
                                  .computed_tokens = riding,
                                  .context_tokens = riding * context,
                                  .distinct_positions = riding,
                                  .sampled_rows = riding});
  return seconds * static_cast<double>(sequences) / static_cast<double>(riding);
}

}  // namespace

AdmissionBudget::AdmissionBudget(const QueueOptions& options) : options_(options) {}

double AdmissionBudget::ShareOf(int priority) const {
  SLUICE_CHECK(priority >= 1 && priority <= kPriorityLevels);
  return requests_ == 0 ? 1 : std::pow(options_.priority_share, priority - 1);
}

absl::Status AdmissionBudget::Take(const RequestLoad& load) {
  if (load.tokens > options_.max_tokens) {
    return TooLarge("max_tokens", options_.max_tokens, "tokens", load.tokens);
  }
  if (load.bytes > options_.max_bytes) {
    return TooLarge("max_bytes", options_.max_bytes, "bytes", load.bytes);
  }
  const double share = ShareOf(load.priority);
  const int64_t requests = Part(options_.max_requests, share);
  const int64_t tokens = Part(options_.max_tokens, share);
  const int64_t bytes = Part(options_.max_bytes, share);
  if (requests_ >= requests) return Full("max_requests", requests, "requests", load.priority);
  if (load.tokens > tokens - tokens_) return Full("max_tokens", tokens, "tokens", load.priority);
  if (load.bytes > bytes - bytes_) return Full("max_bytes", bytes, "bytes", load.priority);
  ++requests_;
  tokens_ += load.tokens;
  bytes_ += load.bytes;
  return absl::OkStatus();
}

void AdmissionBudget::Return(const RequestLoad& load) {
  --requests_;
  tokens_ -= load.tokens;
  bytes_ -= load.bytes;
  SLUICE_CHECK(requests_ >= 0 && tokens_ >= 0 && bytes_ >= 0);
}

nanoseconds TimeNeeded(const Due& due, int64_t running, const Scheduler& scheduler) {
  const SequenceQueue::Prompts ahead = scheduler.queue().PromptsDueBy(due.deadline, due.priority);
  const int64_t riding = due.steps > 0 ? running + ahead.sequences : 0;
  if (ahead.tokens + riding == 0) return nanoseconds(0);
  const auto steps = static_cast<double>(due.steps);
  const double between = static_cast<double>(riding) * steps * due.prompts_per_step;
  const double prompts = scheduler.costs().EstimateDrain(
      ahead.tokens + due.tokens + std::llround(std::min(between, kMostBetween)),
      scheduler.ladder()->largest());
  const double later = steps * StepSeconds(riding + due.rows, due.context, scheduler);
  // An hour is longer than any deadline that is of interest.
  return std::chrono::duration_cast<nanoseconds>(
      std::chrono::duration<double>(std::min(prompts + later, 3600.0)));
}

double ForecastError::factor() const { return std::clamp(mean_ + 2 * deviation_, 0.25, 8.0); }

void ForecastError::Learn(const Lesson& lesson) {
  constexpr double kWeight = 1.0 / 64;
  constexpr double kMost = 8;
  const double needed = SecondsOf(lesson.needed), took = SecondsOf(lesson.took);
  double ratio = 1, deviation = kFirstDeviation;
  const bool near = needed > 0 && 2 * factor() * needed >= SecondsOf(lesson.allowed);
  if (near || lesson.missed) {
    ratio = needed > 0 ? std::min((lesson.missed ? 2 : 1) * took / needed, kMost) : kMost;
    deviation = std::abs(ratio - mean_);
  }
  mean_ += kWeight * (ratio - mean_);
  deviation_ += kWeight * (deviation - deviation_);
}

}  // namespace sluice
