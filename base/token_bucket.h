// A token bucket: so much per second on average, and so much at once.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace sluice {

struct BucketRate {
  double per_second = 0;  // 0: no bound
  double burst = 0;       // > 0 where there is a bound: what a full bucket holds
};

// Thread-safe, without locks. Kept as the one time at which the bucket will be full again (the generic
// cell rate algorithm), so that nothing runs to fill it. Full at first.
class TokenBucket {
 public:
  // Takes `amount` and returns 0; or takes nothing and returns after how long that will be possible,
  // if nobody else takes any. More than the burst is given when the bucket is full, which then owes
  // it, so that there is no amount that never comes in. Times are cut at a day.
  nanoseconds Take(double amount, const BucketRate& rate, MonoTime now);

  // Gives back what was taken at this rate and not used.
  void Return(double amount, const BucketRate& rate);

 private:
  std::atomic<int64_t> full_at_{0};  // ns of MonoTime; past: it is full
};

}  // namespace sluice
