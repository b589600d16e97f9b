// The end of the process. SIGTERM and SIGINT drain; a second such signal ends the process at once,
// and a part that hangs does not keep it from ending. SIGHUP reloads.
#pragma once

#include <functional>

#include "base/clock.h"

namespace sluice {

// Blocks SIGTERM, SIGINT and SIGHUP in this thread and in the threads that it starts from now on,
// and ignores SIGPIPE. Must be called before any other thread exists.
void BlockSignals();

// Waits for SIGTERM or SIGINT and returns it. Until then, calls `on_hangup`, which must return
// quickly, for each SIGHUP. After the return, the next SIGTERM or SIGINT ends the process with the
// status 128 + signal, whatever the drain is doing.
int WaitForTermination(const std::function<void()>& on_hangup);

// The exit status of the process when a part of it hung.
inline constexpr int kHungStatus = 70;

// Ends the process with kHungStatus after `delay`, unless it has ended by then. Runs no
// destructors, so that no thread is waited for.
void ExitAfter(nanoseconds delay);

}  // namespace sluice
