// The end of the process. SIGTERM and SIGINT drain; a second such signal ends the process at once,
// and a part that hangs does not keep it from ending. SIGHUP reloads.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "base/clock.h"

namespace sluice {

// Blocks SIGTERM, SIGINT and SIGHUP in this thread and in the threads that it starts from now on,
// and ignores SIGPIPE. Must be called before any other thread exists.
void BlockSignals();

// Waits for SIGTERM and SIGINT on a thread of its own from its construction on, so that they are
// heard while the daemon starts. Calls `on_hangup`, which must return quickly, for each SIGHUP
// until then. After the first of the two signals the next one ends the process with the status
// 128 + signal, whatever the drain is doing. Thread-safe; there is one in a process.
class Termination {
 public:
  explicit Termination(std::function<void()> on_hangup);

  bool requested() const { return state_->signal != 0; }
  // Returns the signal, once it has come.
  int Await();

 private:
  // Outlives the object where no signal comes: the thread then waits until the process ends.
  struct State {
    std::function<void()> on_hangup;
    std::atomic<int> signal = 0;
  };
  const std::shared_ptr<State> state_;
};

// The exit status of the process when a part of it hung.
inline constexpr int kHungStatus = 70;

// Ends the process with kHungStatus after `delay`, unless it has ended by then. Runs no
// destructors, so that no thread is waited for.
void ExitAfter(nanoseconds delay);

}  // namespace sluice
