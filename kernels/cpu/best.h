// The k best of many values: the largest values; of equal values, the lower indices. Top-k
// selection and the head share it.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/cpu/simd/table.h"

namespace sluice::kernels {

// Returns a key that orders by value, then by descending index: the value's bits made monotonic,
// above the inverted index. NaN is below -inf.
inline uint64_t KeyOf(float value, int32_t index) {
  uint32_t orderable = 0;
  if (!std::isnan(value)) {
    const uint32_t bits = std::bit_cast<uint32_t>(value + 0.0f);  // -0 ties with 0
    orderable = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
  }
  return uint64_t{orderable} << 32 | static_cast<uint32_t>(~index);
}

inline int32_t IndexOf(uint64_t key) { return static_cast<int32_t>(~static_cast<uint32_t>(key)); }

// Returns the value of a key; the sign of 0 is lost.
inline float ValueOf(uint64_t key) {
  const auto orderable = static_cast<uint32_t>(key >> 32);
  if (orderable == 0) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>((orderable >> 31) != 0 ? orderable & 0x7FFFFFFFu : ~orderable);
}

// Returns a scan bound that `value` itself passes. For -inf this is NaN; every value passes it.
inline float JustBelow(float value) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  return value > -infinity ? std::nextafter(value, -infinity)
                           : std::numeric_limits<float>::quiet_NaN();
}

// The k best keys of all keys added.
class Best {
 public:
  // Collects keys in keys[capacity] and cuts them back to k when it is full. Requires capacity >=
  // k. A larger capacity lowers the cost of cutting per element.
  Best(uint64_t* keys, int64_t k, int64_t capacity) : keys_(keys), k_(k), capacity_(capacity) {}

  void Add(uint64_t key) {
    if (cut_ && key <= last()) return;
    if (size_ == capacity_) {
      Cut();
      if (key <= last()) return;
    }
    keys_[size_++] = key;
  }
  // Adds the values x[0, n), whose indices begin at `first`; may skip values <= bound.
  void AddRange(const simd::Table& table, const float* x, int32_t first, int64_t n, float bound);
  // Adds all keys of another Best.
  void AddAll(const Best& other);

  // Keeps only the k best keys, if there are more. The least key is at the end; the others are in
  // no order. From then on keys that are not above the least one are rejected.
  void Cut();
  // Cuts and sorts in descending order.
  void Sort();

  bool cut() const { return cut_; }
  int64_t size() const { return size_; }
  uint64_t key(int64_t i) const { return keys_[i]; }
  uint64_t last() const { return keys_[k_ - 1]; }  // the least key; valid once cut()

 private:
  // Cuts once a quarter of the spare capacity is used, because the tighter bound is then worth the
  // cost.
  void CutIfWorthwhile() {
    if (size_ - k_ >= (capacity_ - k_ + 3) / 4) Cut();
  }

  uint64_t* keys_;
  int64_t k_, capacity_;
  int64_t size_ = 0;
  bool cut_ = false;
};

}  // namespace sluice::kernels
