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
  // Returns ResourceExhausted, which names `what`, if memory does not suffice.
  static absl::StatusOr<FloatBuffer> Allocate(int64_t floats, const char* what);

  float* data() const { return data_.get(); }
  int64_t floats() const { return floats_; }
  int64_t bytes() const { return floats_ * kSizeOf<float>; }
  // Gives the memory behind the first `kept` floats back to the system; its content is lost.
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
