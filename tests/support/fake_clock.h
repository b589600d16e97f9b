// Time that moves only when a test advances it.
#pragma once

#include <initializer_list>
#include <list>

#include "base/clock.h"
#include "base/mutex.h"

namespace sluice {

// Thread-safe. Starts one hour after the epoch, so that no real time is mistaken for "unset".
class FakeClock : public Clock {
 public:
  MonoTime Now() const override;
  void WaitUntil(CondVar* cv, Mutex* mu, MonoTime deadline) override;

  // Advances the time and wakes every waiter to check it. The caller must not hold a mutex that a
  // waiter waits with.
  void Advance(nanoseconds by);

  // Returns once a thread waits for a deadline of exactly `deadline`.
  void AwaitWaiter(MonoTime deadline) { AwaitWaiterFor({deadline}); }
  // Returns the first of `deadlines` that a thread waits for, once there is one.
  MonoTime AwaitWaiterFor(std::initializer_list<MonoTime> deadlines);

 private:
  // What it points to may be gone as soon as its thread goes on, which therefore waits for all that
  // are about to signal it.
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
