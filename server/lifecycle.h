// Signals. SIGTERM and SIGINT drain; a second one ends the process at once. SIGHUP reloads.
#pragma once

#include <functional>

namespace sluice {

// Blocks these signals in this thread and in those it starts from now on, and ignores SIGPIPE. To be
// called while there is no other thread.
void BlockSignals();

// Waits for SIGTERM or SIGINT and returns it; each SIGHUP until then is a call of `on_hangup`, which
// returns quickly. From then on the next of the two ends the process with the status 128 + signal,
// whatever the drain is doing.
int WaitForTermination(const std::function<void()>& on_hangup);

}  // namespace sluice
