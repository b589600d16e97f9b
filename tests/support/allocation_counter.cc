#include "tests/support/allocation_counter.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <new>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLUICE_SANITIZER_HOOKS
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SLUICE_SANITIZER_HOOKS
#endif
#endif

namespace {

thread_local int64_t allocations = 0;
thread_local int64_t failing_allocation = 0;  // its number; 0: none
thread_local bool (*is_spared)() = nullptr;
std::atomic<int64_t> allocations_of_all = 0;
std::atomic<int64_t> failing_size = -1;  // in bytes; -1: none
thread_local int64_t live_bytes = 0;     // may be negative: another thread may free memory
thread_local int64_t peak_bytes = 0;

void CountTaken(size_t bytes) {
  live_bytes += static_cast<int64_t>(bytes);
  peak_bytes = std::max(peak_bytes, live_bytes);
}
void CountFreed(size_t bytes) { live_bytes -= static_cast<int64_t>(bytes); }

#ifndef SLUICE_SANITIZER_HOOKS
void* Taken(void* memory) {
  CountTaken(malloc_usable_size(memory));
  return memory;
}
#endif

// Counts an allocation. Returns whether it fails.
bool CountFails(size_t bytes) {
  if (++allocations == failing_allocation && (is_spared == nullptr || !is_spared())) return true;
  allocations_of_all.fetch_add(1, std::memory_order_relaxed);
  return static_cast<int64_t>(bytes) == failing_size.load(std::memory_order_relaxed);
}

// Returns nullptr if there is no memory.
void* TryAllocate(size_t bytes, size_t alignment) {
  return CountFails(bytes) ? nullptr : memalign(alignment, bytes);
}

void* Allocate(size_t bytes, size_t alignment) {
  void* const memory = TryAllocate(bytes, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

// Not inlined, because GCC would report that std::free gets memory of operator new.
[[gnu::noinline]] void Free(void* memory) { std::free(memory); }

}  // namespace

// The bytes are counted below operator new, so that memory of libraries in C counts too.
#ifdef SLUICE_SANITIZER_HOOKS

extern "C" {
size_t __sanitizer_get_allocated_size(const volatile void* memory);
int __sanitizer_get_ownership(const volatile void* memory);

// Called by the sanitizer's allocator.
void __sanitizer_malloc_hook(const volatile void* memory, size_t bytes) { CountTaken(bytes); }
void __sanitizer_free_hook(const volatile void* memory) {
  // The sanitizer reports other pointers afterwards.
  if (memory != nullptr && __sanitizer_get_ownership(memory) != 0) {
    CountFreed(__sanitizer_get_allocated_size(memory));
  }
}
}  // extern "C"

#else

extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void* memory);

// These replace glibc's functions in the whole program ("Replacing malloc" in its manual).
void* malloc(size_t bytes) noexcept { return Taken(__libc_malloc(bytes)); }
void* calloc(size_t count, size_t bytes) noexcept { return Taken(__libc_calloc(count, bytes)); }
void* memalign(size_t alignment, size_t bytes) noexcept {
  return Taken(__libc_memalign(alignment, bytes));
}
int posix_memalign(void** out, size_t alignment, size_t bytes) noexcept {
  if (alignment % sizeof(void*) != 0 || !std::has_single_bit(alignment)) return EINVAL;
  void* const memory = memalign(alignment, bytes);
  if (memory == nullptr) return ENOMEM;
  *out = memory;
  return 0;
}
void* realloc(void* memory, size_t bytes) noexcept {
  const size_t before = malloc_usable_size(memory);
  void* const moved = __libc_realloc(memory, bytes);
  if (moved != nullptr || bytes == 0) CountFreed(before);
  return Taken(moved);
}
void free(void* memory) noexcept {
  CountFreed(malloc_usable_size(memory));
  __libc_free(memory);
}
}  // extern "C"

#endif

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
  return TryAllocate(bytes, alignment);
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

FailingSize::FailingSize(int64_t bytes) { failing_size = bytes; }
FailingSize::~FailingSize() { failing_size = -1; }

}  // namespace sluice
