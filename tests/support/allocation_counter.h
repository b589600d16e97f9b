// Counts the calls of operator new, in the whole test binary that links allocation_counter.cc.
#pragma once

#include <cstdint>

namespace sluice {

// Returns the number of calls of this thread since it began.
int64_t Allocations();
// Returns the number of calls of all threads.
int64_t AllocationsOfAllThreads();

}  // namespace sluice
