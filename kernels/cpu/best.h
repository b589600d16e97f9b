// The k best of many values: by value, of equal ones the lower index first. What top-k selection
// and the head share.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/cpu/simd/table.h"

namespace sluice::kernels {

// Keys order as (value, lower index first): the value's bits made monotonic above the inverted
// index. NaN is below -inf.
inline uint64_t KeyOf(float value, int32_t index) {
  uint32_t orderable = 0;
  if (!std::isnan(value)) {
    const uint32_t bits = std::bit_cast<uint32_t>(value + 0.0f);  // -0 ties with 0
    orderable = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
  }
  return uint64_t{orderable} << 32 | static_cast<uint32_t>(~index);
}

inline int32_t IndexOf(uint64_t key) { return static_cast<int32_t>(~static_cast<uint32_t>(key)); }

// But for the sign of 0.
inline float ValueOf(uint64_t key) {
  const auto orderable = static_cast<uint32_t>(key >> 32);
  if (orderable == 0) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>((orderable >> 31) != 0 ? orderable & 0x7FFFFFFFu : ~orderable);
}

// The bound of a scan that finds `value` too; NaN, below which everything is found, for -inf.
inline float JustBelow(float value) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  return value > -infinity ? std::nextafter(value, -infinity)
                           : std::numeric_limits<float>::quiet_NaN();
}

// The k best keys of all that were added.
class Best {
 public:
  // Keys are gathered in keys[capacity], capacity >= k, before they are cut back to k: the more
  // room, the less cutting costs per element.
  Best(uint64_t* keys, int64_t k, int64_t capacity) : keys_(keys), k_(k), capacity_(capacity) {}

  void Add(uint64_t key) {
    if (cut_ && key <= last()) return;
    if (size_ == capacity_) {
      Cut();
      if (key <= last()) return;
    }
    keys_[size_++] = key;
  }
  // The values x[0, n) of the indices from `first` on; those <= bound may be left out.
  void AddRange(const simd::Table& table, const float* x, int32_t first, int64_t n, float bound);
  // All of another's.
  void AddAll(const Best& other);

  // Leaves the k best, if there are more, in no order, the least of them at the end: what is not
  // above it is out.
  void Cut();
  // Cut, and in descending order.
  void Sort();

  bool cut() const { return cut_; }
  int64_t size() const { return size_; }
  uint64_t key(int64_t i) const { return keys_[i]; }
  uint64_t last() const { return keys_[k_ - 1]; }  // once cut

 private:
  // A tighter bound pays as soon as a quarter of the room is used.
  void CutIfWorthwhile() {
    if (size_ - k_ >= (capacity_ - k_ + 3) / 4) Cut();
  }

  uint64_t* keys_;
  int64_t k_, capacity_;
  int64_t size_ = 0;
  bool cut_ = false;
};

}  // namespace sluice::kernels
