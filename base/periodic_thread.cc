#include "base/periodic_thread.h"

#include <utility>

namespace sluice {

PeriodicThread::PeriodicThread(Clock* clock, MonoTime first, std::function<MonoTime()> run)
    : clock_(clock), first_(first), run_(std::move(run)), thread_([this] { Loop(); }) {}

PeriodicThread::PeriodicThread(Clock* clock, nanoseconds interval, std::function<void()> run)
    : PeriodicThread(clock, clock->Now() + interval, [clock, interval, run = std::move(run)] {
        run();
        return clock->Now() + interval;
      }) {}

PeriodicThread::~PeriodicThread() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.Signal();
  }
  thread_.join();
}

void PeriodicThread::Wake() {
  MutexLock lock(&mu_);
  woken_ = true;
  changed_.Signal();
}

void PeriodicThread::Loop() {
  MonoTime next = first_;
  while (AwaitNextRun(next)) next = run_();
}

bool PeriodicThread::AwaitNextRun(MonoTime time) {
  MutexLock lock(&mu_);
  while (!stopping_ && !woken_ && clock_->Now() < time) clock_->WaitUntil(&changed_, &mu_, time);
  woken_ = false;
  return !stopping_;
}

}  // namespace sluice
