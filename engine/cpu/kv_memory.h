// The memory of KV pages on the CPU.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <thread>

#include "engine/cpu/float_buffer.h"

namespace sluice {

// Several arrays, each of which holds a part of every page: the keys or the values of one layer.
//
// The system provides memory when it is first written, which takes tens of milliseconds if a
// hypervisor must supply it. Pages come into use in the order of their numbers, in all arrays at
// once. A thread therefore makes the system provide the memory of the next pages before a step
// writes to them. The object is used by one other thread.
class KvMemory {
 public:
  // Requires that `memory` holds `pages` of `page_bytes` for each of `arrays`.
  KvMemory(FloatBuffer memory, int64_t arrays, int32_t pages, int64_t page_bytes);
  ~KvMemory();
  KvMemory(const KvMemory&) = delete;
  KvMemory& operator=(const KvMemory&) = delete;

  int64_t bytes() const { return memory_.bytes(); }
  std::byte* array(int64_t index) const {
    return reinterpret_cast<std::byte*>(memory_.data()) + index * pages_ * page_bytes_;
  }

  // Records that a step is about to write to `page`.
  void Use(int32_t page) {
    if (page >= next_notice_) RequestBehind(page);
  }

 private:
  static constexpr int32_t kStop = -1;
  static constexpr int32_t kNever = std::numeric_limits<int32_t>::max();

  void RequestBehind(int32_t page);
  void ProvideRequested();

  FloatBuffer memory_;
  const int64_t arrays_;
  const int32_t pages_;
  const int64_t page_bytes_;
  const int32_t ahead_;                 // the number of pages that are provided ahead
  int32_t next_notice_;                 // the use of this or a later page requests more
  std::atomic<int32_t> requested_ = 0;  // the end of the pages to be provided, or kStop
  std::thread provider_;                // none without memory; last, because it uses the others
};

}  // namespace sluice
