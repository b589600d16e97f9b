// The priority of background threads.
#pragma once

namespace sluice {

// Lets the other threads of the process run before the calling one. On Linux the nice value belongs
// to the thread; failing to change it does no harm.
void LowerThreadPriority();

}  // namespace sluice
