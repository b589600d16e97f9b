// Turns Ctrl-C into a call.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace sluice::client {

// Handles SIGINT while it exists. A signal calls the function that is set, at most once for each
// Set. Any other signal ends the process at once with kExitInterrupted. Thread-safe.
class Interrupts {
 public:
  // Requires that no other thread has been started: later threads inherit its signal mask.
  Interrupts();
  ~Interrupts();

  // Sets the function to call; an empty one means none. It runs on a thread of this object, never
  // while Set runs. When Set returns, the previous function is not running and will not run again.
  void Set(std::function<void()> call);

 private:
  void Listen();

  absl::Mutex mu_;
  std::function<void()> call_ ABSL_GUARDED_BY(mu_);
  std::atomic<bool> ended_ = false;
  std::thread listener_;
};

}  // namespace sluice::client
