#include "kernels/cpu/memory.h"

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>

#include "base/ceil_div.h"

namespace sluice::kernels {

void* AllocateMemory(int64_t bytes) {
  constexpr int64_t kCacheLine = 64, kHugePage = int64_t{2} << 20;
  const bool large = bytes >= kHugePage;
  const int64_t alignment = large ? kHugePage : kCacheLine;
  void* memory = std::aligned_alloc(alignment, CeilDiv(bytes, alignment) * alignment);
  // The rest of the last page stays untouched.
  if (large && memory != nullptr) {
    madvise(memory, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  }
  return memory;
}

}  // namespace sluice::kernels
