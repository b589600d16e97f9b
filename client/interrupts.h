// Ctrl-C as a call instead of an end.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace sluice::client {

// Takes SIGINT over while it lives. The first one calls what was set; one that finds nothing set,
// and every later one, ends the process at once with kExitInterrupted. Thread-safe.
class Interrupts {
 public:
  // To be made while there is no other thread: those that start later inherit its signal mask.
  Interrupts();
  ~Interrupts();

  // `call` runs on a thread of this object's, never at the same time as Set: when this returns,
  // what was set before neither runs nor will. Empty: nothing is set.
  void Set(std::function<void()> call);

 private:
  void Listen();

  absl::Mutex mu_;
  std::function<void()> call_ ABSL_GUARDED_BY(mu_);
  std::atomic<bool> ended_ = false;
  std::thread listener_;
};

}  // namespace sluice::client
