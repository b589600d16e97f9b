// How the process ends. SIGTERM and SIGINT drain; a second one ends the process at once, and what hangs
// does not hold its end up.
#pragma once

#include "engine/clock.h"

namespace sluice {

// Blocks both signals in this thread and in those it starts from now on, and ignores SIGPIPE. To be
// called while there is no other thread.
void BlockTermination();

// Waits for one of them and returns it. From then on the next one ends the process with the status
// 128 + signal, whatever the drain is doing.
int WaitForTermination();

// Its status when something hung.
inline constexpr int kHungStatus = 70;

// Ends the process with kHungStatus after `delay`, unless it has ended by then: as it is, without any
// destructor, so that no thread is waited for.
void ExitAfter(nanoseconds delay);

}  // namespace sluice
