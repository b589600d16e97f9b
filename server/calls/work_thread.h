// A thread for calls that take long, so that no gRPC thread waits for them.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <thread>

#include "base/mutex.h"

namespace sluice {

// Thread-safe. Jobs run one at a time, in the order of their posting. The destructor waits for the
// one that runs and drops those that have not begun.
class WorkThread {
 public:
  explicit WorkThread(size_t max_waiting);
  ~WorkThread();
  WorkThread(const WorkThread&) = delete;
  WorkThread& operator=(const WorkThread&) = delete;

  // False, and `job` is dropped, when `max_waiting` wait already.
  bool Post(std::function<void()> job);

 private:
  void Run();

  const size_t max_waiting_;
  Mutex mu_;
  CondVar changed_;
  std::deque<std::function<void()>> waiting_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace sluice
