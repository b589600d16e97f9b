// Injected monotonic time.
#pragma once

#include <chrono>

#include "base/mutex.h"

namespace sluice {

// Never moves with the wall clock.
using MonoTime = std::chrono::steady_clock::time_point;
using std::chrono::nanoseconds;

inline double Seconds(nanoseconds duration) {
  return std::chrono::duration<double>(duration).count();
}

class Clock {
 public:
  virtual ~Clock() = default;

  virtual MonoTime Now() const = 0;

  // Waits on `cv` (whose mutex `mu` is held) until it is signalled or `deadline` has passed on this
  // clock; MonoTime::max() waits for a signal alone. May wake spuriously.
  virtual void WaitUntil(CondVar* cv, Mutex* mu, MonoTime deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) = 0;

  // The process's steady clock.
  static Clock* Real();
};

}  // namespace sluice
