#include "server/calls/work_thread.h"

#include <utility>

namespace sluice {

WorkThread::WorkThread(size_t max_waiting)
    : max_waiting_(max_waiting), thread_([this] { Run(); }) {}

WorkThread::~WorkThread() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.Signal();
  }
  thread_.join();
}

bool WorkThread::Post(std::function<void()> job) {
  MutexLock lock(&mu_);
  if (waiting_.size() >= max_waiting_) return false;
  waiting_.push_back(std::move(job));
  changed_.Signal();
  return true;
}

void WorkThread::Run() {
  for (;;) {
    std::function<void()> job;
    {
      MutexLock lock(&mu_);
      while (waiting_.empty() && !stopping_) changed_.Wait(&mu_);
      if (stopping_) return;
      job = std::move(waiting_.front());
      waiting_.pop_front();
    }
    job();
  }
}

}  // namespace sluice
