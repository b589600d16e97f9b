#include "engine/journal/decision_history.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace sluice {

std::vector<ExplainedWait> RecentWaits::Since(MonoTime since) const {
  std::vector<ExplainedWait> waits;
  for (size_t i = count_ - std::min(count_, kWaits); i < count_; ++i) {
    if (waits_[i % kWaits].at >= since) waits.push_back(waits_[i % kWaits]);
  }
  return waits;
}

void RequestHistory::Add(const ExplainedStep& step) {
  const auto alike = [&](const ExplainedStep& last) {
    return last.own_tokens == step.own_tokens && last.batch == step.batch &&
           last.bucket == step.bucket && last.trigger == step.trigger &&
           last.lookup == step.lookup && last.co_batched == step.co_batched;
  };
  const bool waited = std::exchange(waited_, false);
  if (complete_) return;
  if (!steps.empty() && !waited && alike(steps.back())) {
    ExplainedStep& last = steps.back();
    last.last_step = step.last_step;
    last.replay = std::min(last.replay, step.replay);
    last.longest = std::max(last.longest, step.longest);
    last.count += step.count;
  } else if (steps.size() < kSteps) {
    steps.push_back(step);
  } else {
    complete_ = true;
  }
}

void RequestHistory::AddWaits(const RecentWaits& recent, MonoTime queued) {
  if (!recent.AnySince(std::max(seen_, queued))) return;
  for (const ExplainedWait& wait : recent.Since(std::max(seen_, queued))) {
    seen_ = wait.at + nanoseconds(1);
    waited_ = true;
    if (waits.size() < kWaits) waits.push_back(wait);
  }
}

void DecisionHistory::Add(const Request& request, const absl::Status& status,
                          const RequestTrace& trace, RequestHistory history) {
  if (capacity_ == 0 || request.spec->id.empty()) return;
  const size_t hash = std::hash<std::string_view>()(request.spec->id);
  MutexLock lock(&mu_);
  if (explanations_.size() < capacity_) {
    explanations_.emplace_back();
    hashes_.push_back(0);
  }
  hashes_[next_] = hash;
  Explanation& explanation = explanations_[next_];
  explanation.request_id = request.spec->id;
  explanation.caller = request.caller;
  explanation.model = request.spec->model->name;
  explanation.version = request.spec->model->version;
  explanation.status = status;
  explanation.trace = trace;
  explanation.waits = std::move(history.waits);
  explanation.steps = std::move(history.steps);
  next_ = (next_ + 1) % capacity_;
}

absl::StatusOr<Explanation> DecisionHistory::Find(std::string_view request_id) const {
  const size_t hash = std::hash<std::string_view>()(request_id);
  MutexLock lock(&mu_);
  const size_t size = explanations_.size();
  for (size_t age = 1; age <= size; ++age) {
    const size_t place = (next_ + capacity_ - age) % capacity_;
    if (hashes_[place] == hash && explanations_[place].request_id == request_id) {
      return explanations_[place];
    }
  }
  return absl::NotFoundError(absl::StrCat(
      "no request '", absl::CHexEscape(absl::string_view(request_id.data(), request_id.size())),
      "' is among a model's last ", capacity_,
      " finished requests with an id (engine.history.requests)"));
}

}  // namespace sluice
