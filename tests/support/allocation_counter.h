// Counts calls of operator new and aligned_alloc, and the bytes of malloc, in the test binary that
// links allocation_counter.cc.
#pragma once

#include <cstdint>

namespace sluice {

// Returns the number of calls of operator new of this thread since its start.
int64_t Allocations();
// Returns the number of calls of all threads.
int64_t AllocationsOfAllThreads();

// The memory of malloc and similar functions, operator new included, that this thread took and has
// not freed, from now on.
class MemoryPeak {
 public:
  MemoryPeak();
  // Returns the most bytes at a time so far. Memory that the thread had before does not count.
  int64_t bytes() const;

 private:
  int64_t before_;
};

// While it exists, makes one allocation of this thread fail: the `nth` from now on, counted from 1;
// 0 means none. If `spared` is given and returns true at that call, the call does not fail.
class FailingAllocation {
 public:
  explicit FailingAllocation(int64_t nth, bool (*spared)() = nullptr);
  ~FailingAllocation();
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;
};

// While it exists, makes the allocations of exactly this many bytes fail, in all threads. At most
// one object may exist.
class FailingSize {
 public:
  explicit FailingSize(int64_t bytes);
  ~FailingSize();
  FailingSize(const FailingSize&) = delete;
  FailingSize& operator=(const FailingSize&) = delete;
};

}  // namespace sluice
