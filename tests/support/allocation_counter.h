// Counts the calls of operator new, in the whole test binary that links allocation_counter.cc.
#pragma once

#include <cstdint>

namespace sluice {

// Returns the number of calls of this thread since it began.
int64_t Allocations();
// Returns the number of calls of all threads.
int64_t AllocationsOfAllThreads();

// Makes one call of this thread fail, while it exists: the `nth` from now on, from 1; none if 0. It
// does not fail either if `spared` is given and returns true then.
class FailingAllocation {
 public:
  explicit FailingAllocation(int64_t nth, bool (*spared)() = nullptr);
  ~FailingAllocation();
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;
};

}  // namespace sluice
