// Runs a function repeatedly on a thread of its own.
//
//   PeriodicThread reads(clock, std::chrono::seconds(1), [&] { files.Look(); });
#pragma once

#include <functional>
#include <thread>

#include "base/clock.h"
#include "base/mutex.h"

namespace sluice {

// Thread-safe. Runs never overlap. The destructor waits for a run in progress and starts no other
// one; the function itself must not destroy the thread.
class PeriodicThread {
 public:
  // Runs `run` first at `first`. Each run returns the time of the next one. MonoTime::max() means
  // that only Wake starts a run. `clock` is not owned and outlives the thread.
  PeriodicThread(Clock* clock, MonoTime first, std::function<MonoTime()> run);

  // Runs `run` first after one `interval`, and then one `interval` after the end of each run.
  PeriodicThread(Clock* clock, nanoseconds interval, std::function<void()> run);

  ~PeriodicThread();
  PeriodicThread(const PeriodicThread&) = delete;
  PeriodicThread& operator=(const PeriodicThread&) = delete;

  // Starts a run at once, or after the current one. Several calls before that run starts count as
  // one.
  void Wake();

 private:
  void Loop();
  // Returns false when the thread is to end.
  bool AwaitNextRun(MonoTime time);

  Clock* const clock_;
  const MonoTime first_;
  const std::function<MonoTime()> run_;

  Mutex mu_;
  CondVar changed_;
  bool woken_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;

  std::thread thread_;  // last: starts when all else is built
};

}  // namespace sluice
