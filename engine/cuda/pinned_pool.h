// Keeps pinned memory that was released and hands it out again, because pinning and unpinning
// memory wait for all work on the device. Thread-safe.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"

namespace sluice {

class PinnedPool {
 public:
  struct Source {
    std::function<absl::StatusOr<void*>(size_t)> pin;
    std::function<void(void*)> unpin;
  };
  // Keeps the blocks that were released last, up to `most_kept_bytes` together.
  PinnedPool(Source source, size_t most_kept_bytes)
      : source_(std::move(source)), most_kept_bytes_(most_kept_bytes) {}
  // Unpins the kept blocks.
  ~PinnedPool() { UnpinKept(); }
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  // Returns a block of at least `bytes`, or the source's error. If the source has no memory left,
  // all kept blocks are unpinned before a second try.
  absl::StatusOr<void*> Take(size_t bytes);
  // Requires that `memory` is from Take.
  void Release(void* memory);

  // Returns the size of the block for a request: `bytes` rounded up by at most an eighth, but at
  // least a page.
  static size_t SizeClass(size_t bytes);

 private:
  struct Block {
    void* memory;
    size_t bytes;
  };

  void* TakeKept(size_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  void UnpinKept() ABSL_LOCKS_EXCLUDED(mutex_);

  const Source source_;
  const size_t most_kept_bytes_;
  Mutex mutex_;                                      // not held while the source is called
  std::vector<Block> kept_ ABSL_GUARDED_BY(mutex_);  // the oldest first
  size_t kept_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<void*, size_t> taken_ ABSL_GUARDED_BY(mutex_);  // bytes by memory
};

}  // namespace sluice
