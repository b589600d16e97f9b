// Changes defaults of libraries that cost a daemon memory and time. Linking this file also opens
// /dev/null for standard descriptors that are closed at the start.
#pragma once

namespace sluice {

// Changes the defaults for the whole process. Must be called before any thread starts.
//
// Heaps: memory freed after many large messages is returned to the system. By default malloc has
// eight heaps per processor. Each heap keeps the memory below any block still in use, and over time
// malloc also takes large blocks from the heaps. Locks: Debian's build of Abseil tracks the order
// of locks to find deadlocks; this is switched off because gRPC takes many locks for each call.
void TuneProcess();

// Gives free memory below blocks still in use back to the system; malloc never does this by itself.
// Should be called from time to time. It takes about a millisecond, during which other threads may
// wait for memory.
void TrimHeaps();

}  // namespace sluice
