#include "base/token_bucket.h"

#include <algorithm>

namespace sluice {
namespace {

constexpr double kDayNs = 86400e9;

// Returns the time in which the bucket gains `amount`, in nanoseconds.
int64_t TimeFor(double amount, const BucketRate& rate) {
  return static_cast<int64_t>(std::min(amount / rate.per_second * 1e9, kDayNs));
}

}  // namespace

nanoseconds TokenBucket::Take(double amount, const BucketRate& rate, MonoTime now) {
  if (rate.per_second == 0) return nanoseconds(0);
  const int64_t time = now.time_since_epoch().count();
  const int64_t needed = TimeFor(std::min(amount, rate.burst), rate);
  const int64_t capacity = TimeFor(rate.burst, rate);
  int64_t full_at = full_at_.load(std::memory_order_relaxed);
  for (;;) {
    const int64_t missing = std::max<int64_t>(full_at - time, 0);
    if (missing + needed > capacity) return nanoseconds(missing + needed - capacity);
    const int64_t later = time + missing + TimeFor(amount, rate);
    if (full_at_.compare_exchange_weak(full_at, later, std::memory_order_relaxed)) {
      return nanoseconds(0);
    }
  }
}

void TokenBucket::Return(double amount, const BucketRate& rate) {
  if (rate.per_second == 0) return;
  full_at_.fetch_sub(TimeFor(amount, rate), std::memory_order_relaxed);
}

}  // namespace sluice
