#include "tests/support/fake_clock.h"

#include <algorithm>

namespace sluice {

MonoTime FakeClock::Now() const {
  MutexLock lock(&mu_);
  return now_;
}

void FakeClock::WaitUntil(CondVar* cv, Mutex* mu, MonoTime deadline) {
  std::list<Waiter>::iterator self;
  {
    MutexLock lock(&mu_);
    if (deadline <= now_) return;
    self = waiters_.insert(waiters_.end(), {cv, mu, deadline});
    arrived_.SignalAll();
  }
  cv->Wait(mu);  // Advance takes `mu` before it signals, so it cannot signal before this waits
  MutexLock lock(&mu_);
  waiters_.erase(self);
}

void FakeClock::Advance(nanoseconds by) {
  std::list<Waiter> waiters;
  {
    MutexLock lock(&mu_);
    now_ += by;
    waiters = waiters_;
  }
  for (const Waiter& waiter : waiters) {
    MutexLock lock(waiter.mu);
    waiter.cv->SignalAll();
  }
}

MonoTime FakeClock::AwaitWaiterFor(std::initializer_list<MonoTime> deadlines) {
  MutexLock lock(&mu_);
  while (true) {
    for (const MonoTime deadline : deadlines) {
      if (std::ranges::count(waiters_, deadline, &Waiter::deadline) > 0) return deadline;
    }
    arrived_.Wait(&mu_);
  }
}

}  // namespace sluice
