#include "server/common/callback_times.h"

#include <utility>

namespace sluice {

thread_local CallbackTimes::Scope* CallbackTimes::innermost = nullptr;

CallbackTimes::Scope::Scope(const char* method, Event event)
    : method_(method), event_(event), outer_(innermost), begin_(Clock::Real()->Now()) {
  if (outer_ == nullptr) innermost = this;
}

CallbackTimes::Scope::~Scope() {
  if (outer_ != nullptr) return;  // nested callback; the outer one counts
  innermost = nullptr;
  OfProcess().Record(*this);
}

CallbackTimes& CallbackTimes::OfProcess() {
  static CallbackTimes& times = *new CallbackTimes;
  return times;
}

void CallbackTimes::CountBytes(int64_t bytes) {
  if (innermost != nullptr) innermost->bytes_ += bytes;
}

void CallbackTimes::Record(const Scope& scope) {
  const nanoseconds took = Clock::Real()->Now() - scope.begin_;
  Counters& counters = counters_[static_cast<size_t>(scope.event_)];
  counters.all.fetch_add(1, std::memory_order_relaxed);
  counters.nanoseconds.fetch_add(took.count(), std::memory_order_relaxed);
  int64_t most = most_bytes();
  while (scope.bytes_ > most &&
         !most_bytes_.compare_exchange_weak(most, scope.bytes_, std::memory_order_relaxed)) {
  }
  if (took <= kBound) return;
  counters.slow.fetch_add(1, std::memory_order_relaxed);
  MutexLock lock(&mu_);
  if (!slowest_ || took > slowest_->took) slowest_ = {scope.method_, scope.event_, took};
}

CallbackTimes::EventCounts CallbackTimes::Of(Event event) const {
  const Counters& counters = counters_[static_cast<size_t>(event)];
  return {.all = counters.all.load(std::memory_order_relaxed),
          .slow = counters.slow.load(std::memory_order_relaxed),
          .total = nanoseconds(counters.nanoseconds.load(std::memory_order_relaxed))};
}

std::optional<CallbackTimes::Slowest> CallbackTimes::TakeSlowest() {
  MutexLock lock(&mu_);
  return std::exchange(slowest_, std::nullopt);
}

}  // namespace sluice
