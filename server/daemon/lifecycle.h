// Ends the process. SIGTERM and SIGINT drain; a second such signal ends the process at once, even
// if a part hangs. SIGHUP reloads.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "base/clock.h"

namespace sluice {

// Blocks SIGTERM, SIGINT and SIGHUP in this thread and all threads started later, and ignores
// SIGPIPE. Must be called before any other thread exists.
void BlockSignals();

// Waits for SIGTERM and SIGINT on its own thread from construction on, so that they are handled
// even while the daemon starts. Until the first of them arrives, each SIGHUP calls `on_hangup`,
// which must return quickly. The next SIGTERM or SIGINT ends the process with the status 128 +
// signal, even if the drain hangs. Thread-safe; there is one per process.
class Termination {
 public:
  explicit Termination(std::function<void()> on_hangup);

  bool requested() const { return state_->signal != 0; }
  // Blocks until a signal arrives, and returns it.
  int Await();

 private:
  // Outlives the object if no signal arrives, because the thread then waits until the process ends.
  struct State {
    std::function<void()> on_hangup;
    std::atomic<int> signal = 0;
  };
  const std::shared_ptr<State> state_;
};

// The exit status of the process when a part of it hung.
inline constexpr int kHungStatus = 70;

// Ends the process with kHungStatus after `delay`, unless it has already ended. Runs no
// destructors, so it does not wait for any thread.
void ExitAfter(nanoseconds delay);

}  // namespace sluice
