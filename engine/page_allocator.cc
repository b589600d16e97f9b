#include "engine/page_allocator.h"

#include <algorithm>

#include "kernels/check.h"

namespace sluice {

PageAllocator::PageAllocator(int32_t pages) : pages_(static_cast<size_t>(pages)), free_(pages_) {
  for (size_t i = 0; i < pages_; ++i) free_[i] = static_cast<int32_t>(pages_ - 1 - i);
}

bool PageAllocator::Allocate(std::span<int32_t> out) {
  if (out.size() > free_.size()) return false;
  std::copy_n(free_.rbegin(), out.size(), out.begin());
  free_.resize(free_.size() - out.size());
  return true;
}

void PageAllocator::Free(std::span<const int32_t> pages) {
  SLUICE_CHECK(pages.size() <= pages_ - free_.size());
  free_.insert(free_.end(), pages.rbegin(), pages.rend());
}

}  // namespace sluice
