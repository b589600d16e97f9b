// Monotonic time that is injected, so that tests drive it by hand.
#pragma once

#include <chrono>

#include "base/mutex.h"

namespace sluice {

// A time on a clock that is never set.
using MonoTime = std::chrono::steady_clock::time_point;
using std::chrono::nanoseconds;

inline double Seconds(nanoseconds duration) {
  return std::chrono::duration<double>(duration).count();
}

class Clock {
 public:
  virtual ~Clock() = default;

  virtual MonoTime Now() const = 0;

  // Waits on `cv` until it is signalled or `deadline` has passed on this clock. MonoTime::max()
  // means no deadline. May wake spuriously. Requires that `mu` is held.
  virtual void WaitUntil(CondVar* cv, Mutex* mu, MonoTime deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) = 0;

  // Returns the steady clock of the process.
  static Clock* Real();
};

}  // namespace sluice
