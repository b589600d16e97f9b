// Counts the calls of operator new, in the whole test binary that links allocation_counter.cc.
#pragma once

#include <cstdint>

namespace sluice {

// Of this thread, since it began.
int64_t Allocations();
int64_t AllocationsOfAllThreads();

}  // namespace sluice
