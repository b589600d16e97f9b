// Divides an allocation into arrays.
#pragma once

#include <cstdint>

#include "base/size_of.h"

namespace sluice {

// Takes consecutive arrays from an allocation, each at a multiple of 256 bytes. With a null pointer
// it counts the bytes that they need, and the arrays must not be used.
class Cutter {
 public:
  explicit Cutter(void* memory) : memory_(reinterpret_cast<uintptr_t>(memory)) {}
  template <typename U>
  U* Take(int64_t count) {
    auto* const place = reinterpret_cast<U*>(memory_ + static_cast<uintptr_t>(end_));
    end_ += (count * kSizeOf<U> + 255) / 256 * 256;
    return place;
  }
  int64_t end() const { return end_; }

 private:
  uintptr_t memory_;
  int64_t end_ = 0;
};

}  // namespace sluice
