#include "engine/cuda/pinned_pool.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace sluice {

size_t PinnedPool::SizeClass(size_t bytes) {
  constexpr size_t kPage = 4096;
  const size_t step = std::max(kPage, std::bit_floor(bytes) / 8);
  return (bytes + step - 1) / step * step;
}

absl::StatusOr<void*> PinnedPool::Take(size_t bytes) {
  bytes = SizeClass(bytes);
  if (void* const kept = TakeKept(bytes); kept != nullptr) return kept;
  absl::StatusOr<void*> memory = source_.pin(bytes);
  if (absl::IsResourceExhausted(memory.status())) {
    UnpinKept();
    memory = source_.pin(bytes);
  }
  if (!memory.ok()) return memory;
  const MutexLock lock(&mutex_);
  taken_[*memory] = bytes;
  return memory;
}

void* PinnedPool::TakeKept(size_t bytes) {
  const MutexLock lock(&mutex_);
  const auto found = std::find_if(kept_.rbegin(), kept_.rend(),
                                  [bytes](const Block& block) { return block.bytes == bytes; });
  if (found == kept_.rend()) return nullptr;
  void* const memory = found->memory;
  kept_.erase(std::next(found).base());
  kept_bytes_ -= bytes;
  taken_[memory] = bytes;
  return memory;
}

void PinnedPool::Release(void* memory) {
  std::vector<void*> dropped;
  {
    const MutexLock lock(&mutex_);
    const auto found = taken_.find(memory);
    SLUICE_CHECK(found != taken_.end());
    kept_.push_back({memory, found->second});
    kept_bytes_ += found->second;
    taken_.erase(found);
    auto first = kept_.begin();
    for (; kept_bytes_ > most_kept_bytes_; ++first) {
      kept_bytes_ -= first->bytes;
      dropped.push_back(first->memory);
    }
    kept_.erase(kept_.begin(), first);
  }
  for (void* block : dropped) source_.unpin(block);
}

void PinnedPool::UnpinKept() {
  std::vector<Block> dropped;
  {
    const MutexLock lock(&mutex_);
    dropped = std::exchange(kept_, {});
    kept_bytes_ = 0;
  }
  for (const Block& block : dropped) source_.unpin(block.memory);
}

}  // namespace sluice
