// Looks at something again and again.
#pragma once

#include <functional>
#include <thread>

#include "base/clock.h"
#include "base/mutex.h"

namespace sluice {

// `look` is called on a thread of its own every `interval`, the first time after one. The destructor
// waits for a call in progress.
class PollThread {
 public:
  PollThread(nanoseconds interval, Clock* clock, std::function<void()> look);
  ~PollThread();
  PollThread(const PollThread&) = delete;
  PollThread& operator=(const PollThread&) = delete;

 private:
  void Run();
  bool WaitUntil(MonoTime time);  // false: stop

  const nanoseconds interval_;
  Clock* const clock_;
  const std::function<void()> look_;
  Mutex mu_;
  CondVar stopped_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;  // last: starts when all else is built
};

}  // namespace sluice
