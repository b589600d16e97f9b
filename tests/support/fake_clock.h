// A clock that moves only when a test advances it.
#pragma once

#include <initializer_list>
#include <list>

#include "base/clock.h"
#include "base/mutex.h"

namespace sluice {

// Thread-safe. Starts one hour after the epoch, so that no time equals the "unset" time.
class FakeClock : public Clock {
 public:
  MonoTime Now() const override;
  void WaitUntil(CondVar* cv, Mutex* mu, MonoTime deadline) override;

  // Advances the time and wakes every waiter to check it. The caller must not hold the mutex of a
  // waiter.
  void Advance(nanoseconds by);

  // Returns once a thread is waiting for exactly `deadline`.
  void AwaitWaiter(MonoTime deadline) { AwaitWaiterFor({deadline}); }
  // Waits until a thread waits for one of `deadlines`; returns the first such deadline.
  MonoTime AwaitWaiterFor(std::initializer_list<MonoTime> deadlines);

 private:
  // The pointers are valid until the waiting thread continues. It therefore first waits for every
  // Advance that is about to signal it.
  struct Waiter {
    CondVar* cv;
    Mutex* mu;
    MonoTime deadline;
    int signals = 0;
  };

  mutable Mutex mu_;
  CondVar arrived_;
  CondVar signalled_;
  MonoTime now_ ABSL_GUARDED_BY(mu_) = MonoTime(std::chrono::hours(1));
  std::list<Waiter> waiters_ ABSL_GUARDED_BY(mu_);
};

}  // namespace sluice
