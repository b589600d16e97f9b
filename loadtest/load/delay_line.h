// Actions at given times, on one thread: never early, in the order of their times.
#pragma once

#include <chrono>
#include <functional>
#include <queue>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace sluice::load {

class DelayLine {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Action = std::function<void()>;

  DelayLine() : thread_([this] { Run(); }) {}

  // What is left is done at once.
  ~DelayLine() {
    {
      const MutexLock lock(&mu_);
      ending_ = hurried_ = true;
      changed_.Signal();
    }
    thread_.join();
  }

  // From here on nothing waits for its time.
  void Hurry() {
    const MutexLock lock(&mu_);
    hurried_ = true;
    changed_.Signal();
  }

  void At(Time when, Action action) {
    const MutexLock lock(&mu_);
    const bool first = entries_.empty() || when < entries_.top().when;
    entries_.push({when, number_++, std::move(action)});
    if (first) changed_.Signal();
  }

 private:
  struct Entry {
    Time when;
    int64_t number;
    Action action;
    bool operator<(const Entry& other) const {  // the earliest is on top of the heap
      return std::pair(when, number) > std::pair(other.when, other.number);
    }
  };

  void Run() {
    mu_.Lock();
    while (!entries_.empty() || !ending_) {
      if (entries_.empty()) {
        changed_.Wait(&mu_);
      } else if (!hurried_ && entries_.top().when > std::chrono::steady_clock::now()) {
        changed_.WaitUntil(&mu_, entries_.top().when);
      } else {
        const Action action = entries_.top().action;
        entries_.pop();
        mu_.Unlock();
        action();
        mu_.Lock();
      }
    }
    mu_.Unlock();
  }

  Mutex mu_;
  CondVar changed_;
  std::priority_queue<Entry> entries_ ABSL_GUARDED_BY(mu_);
  int64_t number_ ABSL_GUARDED_BY(mu_) = 0;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  bool hurried_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace sluice::load
