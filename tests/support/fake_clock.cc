#include "tests/support/fake_clock.h"

#include <algorithm>
#include <vector>

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
  cv->Wait(mu);  // Advance locks `mu` before it signals, so it cannot signal before the wait
  mu->Unlock();
  {
    MutexLock lock(&mu_);
    while (self->signals > 0) signalled_.Wait(&mu_);
    waiters_.erase(self);
  }
  mu->Lock();
}

void FakeClock::Advance(nanoseconds by) {
  std::vector<Waiter*> waiters;
  {
    MutexLock lock(&mu_);
    now_ += by;
    for (Waiter& waiter : waiters_) {
      ++waiter.signals;
      waiters.push_back(&waiter);
    }
  }
  for (Waiter* const waiter : waiters) {
    {
      MutexLock lock(waiter->mu);
      waiter->cv->SignalAll();
    }
    MutexLock lock(&mu_);
    --waiter->signals;
    signalled_.SignalAll();
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
