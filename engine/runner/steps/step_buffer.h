// Memory of a step that only some steps need.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace sluice {

// It grows to the most values that a step uses. Trim frees it if no step has used all of it since
// the previous call.
template <typename T>
class StepBuffer {
 public:
  // Returns `count` values for a step. They have any content.
  T* Use(size_t count) {
    used_ = std::max(used_, count);
    if (values_.size() < count) {
      values_ = std::vector<T>();
      values_.resize(count);
    }
    return values_.data();
  }
  const T* data() const { return values_.data(); }

  // Allocates nothing. Returns whether a later call may free more.
  bool Trim() {
    if (used_ < values_.size()) values_ = std::vector<T>();  // `{}` would keep the memory
    return std::exchange(used_, 0) > 0;
  }

  int64_t held() const { return values_.capacity(); }

 private:
  std::vector<T> values_;
  size_t used_ = 0;  // the most since the previous Trim
};

}  // namespace sluice
