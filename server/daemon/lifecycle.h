// How the process ends. SIGTERM and SIGINT drain; a second one ends the process at once, and what
// hangs does not hold its end up. SIGHUP reloads.
#pragma once

#include <functional>

#include "base/clock.h"

namespace sluice {

// Blocks these signals in this thread and in those it starts from now on, and ignores SIGPIPE. To
// be called while there is no other thread.
void BlockSignals();

// Waits for SIGTERM or SIGINT and returns it; each SIGHUP until then is a call of `on_hangup`,
// which returns quickly. From then on the next of the two ends the process with the status 128 +
// signal, whatever the drain is doing.
int WaitForTermination(const std::function<void()>& on_hangup);

// Its status when something hung.
inline constexpr int kHungStatus = 70;

// Ends the process with kHungStatus after `delay`, unless it has ended by then: as it is, without
// any destructor, so that no thread is waited for.
void ExitAfter(nanoseconds delay);

}  // namespace sluice
