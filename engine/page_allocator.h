// The free KV pages of a slot.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sluice {

// Hands out page ids in [0, pages), last freed first, so that few pages stay warm. Allocates no
// memory after construction. Not thread-safe.
class PageAllocator {
 public:
  explicit PageAllocator(int32_t pages);

  // Fills `out` with distinct free pages; false, taking none, when there are too few.
  bool Allocate(std::span<int32_t> out);
  // `pages` were allocated and not freed since.
  void Free(std::span<const int32_t> pages);

  int32_t available() const { return static_cast<int32_t>(free_.size()); }

 private:
  const size_t pages_;
  std::vector<int32_t> free_;
};

}  // namespace sluice
