#include "tests/support/allocation_counter.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

thread_local int64_t allocations = 0;
thread_local int64_t failing_allocation = 0;  // its number; 0: none
thread_local bool (*is_spared)() = nullptr;
std::atomic<int64_t> allocations_of_all = 0;
thread_local int64_t live_bytes = 0;  // may be negative: another thread may free memory
thread_local int64_t peak_bytes = 0;

// Counts an allocation. Returns whether it fails.
bool CountFails() {
  if (++allocations == failing_allocation && (is_spared == nullptr || !is_spared())) return true;
  allocations_of_all.fetch_add(1, std::memory_order_relaxed);
  return false;
}

// Returns nullptr if there is no memory.
void* TryAllocate(size_t bytes, size_t alignment) {
  if (CountFails()) return nullptr;
  void* const memory = memalign(alignment, bytes);
  live_bytes += static_cast<int64_t>(malloc_usable_size(memory));
  peak_bytes = std::max(peak_bytes, live_bytes);
  return memory;
}

void Free(void* memory) {
  live_bytes -= static_cast<int64_t>(malloc_usable_size(memory));
  std::free(memory);
}

void* Allocate(size_t bytes, size_t alignment) {
  void* const memory = TryAllocate(bytes, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t bytes) { return Allocate(bytes, alignof(std::max_align_t)); }
void* operator new[](size_t bytes) { return Allocate(bytes, alignof(std::max_align_t)); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<size_t>(alignment));
}
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<size_t>(alignment));
}
// Used by std::stable_sort, for example.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return TryAllocate(bytes, alignof(std::max_align_t));
}
// Used by kernels::AllocateMemory.
extern "C" void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  return CountFails() ? nullptr : memalign(alignment, bytes);
}
void operator delete(void* memory) noexcept { Free(memory); }
void operator delete[](void* memory) noexcept { Free(memory); }
void operator delete(void* memory, size_t) noexcept { Free(memory); }
void operator delete[](void* memory, size_t) noexcept { Free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { Free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { Free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { Free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { Free(memory); }

namespace sluice {

int64_t Allocations() { return allocations; }
int64_t AllocationsOfAllThreads() { return allocations_of_all.load(std::memory_order_relaxed); }

MemoryPeak::MemoryPeak() : before_(live_bytes) { peak_bytes = live_bytes; }
int64_t MemoryPeak::bytes() const { return peak_bytes - before_; }

FailingAllocation::FailingAllocation(int64_t nth, bool (*spared)()) {
  failing_allocation = nth > 0 ? allocations + nth : 0;
  is_spared = spared;
}
FailingAllocation::~FailingAllocation() { failing_allocation = 0; }

}  // namespace sluice
