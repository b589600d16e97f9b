#include "server/security/poll_thread.h"

#include <utility>

namespace sluice {

PollThread::PollThread(nanoseconds interval, Clock* clock, std::function<void()> look)
    : interval_(interval), clock_(clock), look_(std::move(look)), thread_([this] { Run(); }) {}

PollThread::~PollThread() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    stopped_.Signal();
  }
  thread_.join();
}

bool PollThread::WaitUntil(MonoTime time) {
  MutexLock lock(&mu_);
  while (!stopping_ && clock_->Now() < time) clock_->WaitUntil(&stopped_, &mu_, time);
  return !stopping_;
}

void PollThread::Run() {
  while (WaitUntil(clock_->Now() + interval_)) look_();
}

}  // namespace sluice
