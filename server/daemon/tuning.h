// The state of the process at its start: defaults of libraries, and descriptors.
#pragma once

namespace sluice {

// Changes the defaults for the whole process. Must be called before any thread starts.
//
// Heaps: memory freed after many large messages is returned to the system. By default malloc has
// eight heaps per processor. Each heap keeps the memory below any block still in use, and over time
// malloc also takes large blocks from the heaps. Locks: Debian's build of Abseil tracks the order
// of locks to find deadlocks; this is switched off because gRPC takes many locks for each call.
void TuneProcess();

// Opens /dev/null for each of the descriptors 0 to 2 that is closed. Otherwise the first sockets
// would get these numbers, and the log would be written to them. Must be called before anything
// else opens a file.
void OpenStandardDescriptors();

// Gives free memory below blocks still in use back to the system; malloc never does this by itself.
// Should be called from time to time. It takes about a millisecond, during which other threads may
// wait for memory.
void TrimHeaps();

}  // namespace sluice
