// Signals. SIGTERM and SIGINT drain; a second one ends the process at once.
#pragma once

namespace sluice {

// Blocks both signals in this thread and in those it starts from now on, and ignores SIGPIPE. To be
// called while there is no other thread.
void BlockTermination();

// Waits for one of them and returns it. From then on the next one ends the process with the status
// 128 + signal, whatever the drain is doing.
int WaitForTermination();

}  // namespace sluice
