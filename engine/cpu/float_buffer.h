// Uninitialised float memory, aligned to cache lines.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "base/size_of.h"

namespace sluice {

inline constexpr int64_t kCacheLineFloats = 16;

class FloatBuffer {
 public:
  // Returns ResourceExhausted if memory does not suffice. `what` names the memory in the message.
  static absl::StatusOr<FloatBuffer> Allocate(int64_t floats, const char* what);

  float* data() const { return data_.get(); }
  int64_t floats() const { return floats_; }
  int64_t bytes() const { return floats_ * kSizeOf<float>; }
  // Returns the memory after the first `kept` floats to the system. Its content is lost.
  void ReleaseBehind(int64_t kept);

 private:
  struct Free {
    void operator()(float* data) const;
  };
  FloatBuffer(float* data, int64_t floats) : data_(data), floats_(floats) {}

  std::unique_ptr<float, Free> data_;
  int64_t floats_;
};

}  // namespace sluice
