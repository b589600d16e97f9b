#include "kernels/cpu/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>

#include "base/ceil_div.h"

namespace sluice::kernels {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;
#ifdef MADV_POPULATE_WRITE
constexpr int kProvide = MADV_POPULATE_WRITE;
#else
constexpr int kProvide = 23;  // of Linux 5.14; older headers lack the name
#endif

}  // namespace

void* AllocateMemory(int64_t bytes) {
  constexpr int64_t kCacheLineBytes = 64;
  const bool large = bytes >= kHugePage;
  const int64_t alignment = large ? kHugePage : kCacheLineBytes;
  void* memory = std::aligned_alloc(alignment, CeilDiv(bytes, alignment) * alignment);
  // The rest of the last page stays untouched.
  if (large && memory != nullptr) {
    madvise(memory, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  }
  return memory;
}

void ReleaseMemoryBehind(int64_t kept, void* memory, int64_t bytes) {
  if (bytes < kHugePage) return;  // it shares its pages with other memory
  const int64_t begin = CeilDiv(kept, kHugePage) * kHugePage;
  const int64_t end = CeilDiv(bytes, kHugePage) * kHugePage;
  if (begin < end) madvise(static_cast<char*>(memory) + begin, end - begin, MADV_DONTNEED);
}

void ProvideMemory(int64_t begin, int64_t end, void* memory, int64_t bytes) {
  begin = begin / kHugePage * kHugePage;
  end = std::min(CeilDiv(end, kHugePage), bytes / kHugePage) * kHugePage;
  if (begin < end) madvise(static_cast<char*>(memory) + begin, end - begin, kProvide);
}

}  // namespace sluice::kernels
