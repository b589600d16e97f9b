#include "kernels/cpu/memory.h"

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>

#include "base/ceil_div.h"

namespace sluice::kernels {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

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

}  // namespace sluice::kernels
