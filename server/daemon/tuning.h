// Changes defaults of libraries that cost a daemon memory and time.
#pragma once

namespace sluice {

// Changes the defaults for the whole process. Must be called before any thread starts.
//
// Heaps: the memory that a flood of large messages took is returned to the system. By default
// malloc has eight heaps per processor, each of which keeps the memory below any block still in
// use, and in time takes large blocks from the heaps as well. Locks: Debian's build of Abseil
// tracks the order in which locks are taken, to find deadlocks; this is switched off because gRPC
// takes many locks for each call.
void TuneProcess();

// Returns to the system the free memory that the heaps hold below blocks still in use, which malloc
// never does by itself. Should be called now and then; it takes about a millisecond, during which
// other threads may wait for memory.
void TrimHeaps();

}  // namespace sluice
