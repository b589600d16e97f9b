// Defaults of libraries that cost a daemon memory and time.
#pragma once

namespace sluice {

// For the whole process, to be called before any thread starts.
//
// Heaps: what a flood of large messages took goes back to the system. By default malloc has eight
// heaps a processor, each of which keeps what lies below anything still in use, and comes to take
// large blocks from them as well. Locks: Debian's Abseil follows the order of all of them, to find
// deadlocks; gRPC takes many for each call.
void TuneProcess();

// Gives what the heaps hold below anything still in use back to the system, which they never do by
// themselves. Takes a millisecond or so, in which other threads may wait for memory: to be called
// now and then.
void TrimHeaps();

}  // namespace sluice
