// Arrays in one allocation.
#pragma once

#include <cstdint>

#include "base/size_of.h"

namespace sluice {

// Cuts one allocation into arrays.
class Cutter {
 public:
  explicit Cutter(void* memory) : memory_(static_cast<char*>(memory)) {}
  template <typename U>
  U* Take(int64_t count) {
    U* place = reinterpret_cast<U*>(memory_ + end_);
    end_ += (count * kSizeOf<U> + 255) / 256 * 256;
    return place;
  }
  int64_t end() const { return end_; }

 private:
  char* memory_;
  int64_t end_ = 0;
};

}  // namespace sluice
