// A token bucket, which bounds an average rate and a burst.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace sluice {

struct BucketRate {
  double per_second = 0;  // 0 means no bound
  double burst = 0;       // the content of a full bucket; > 0 if there is a bound
};

// Thread-safe, without locks. The only state is the time when the bucket will be full again (the
// generic cell rate algorithm), so that no timer has to fill it. It is full at first.
class TokenBucket {
 public:
  // Takes `amount` and returns 0, or takes nothing and returns the time to wait until the amount is
  // available, if nothing else is taken. An amount larger than the burst is granted when the bucket
  // is full. The bucket is then in debt, so that no amount waits for ever. Times are at most a day.
  nanoseconds Take(double amount, const BucketRate& rate, MonoTime now);

  // Returns an amount to the bucket that was taken at this rate and not used.
  void Return(double amount, const BucketRate& rate);

 private:
  std::atomic<int64_t> full_at_{0};  // ns of MonoTime; the bucket is full if this is past
};

}  // namespace sluice
