#include "kernels/cpu/best.h"

#include <algorithm>
#include <functional>

namespace sluice::kernels {
namespace {

constexpr int64_t kScanIndices = 256;

}  // namespace

void Best::AddRange(const simd::Table& table, const float* x, int32_t first, int64_t n,
                    float bound) {
  int32_t hits[kScanIndices + simd::kScanSlack];
  int64_t i = 0;
  if (!cut_ && std::isnan(bound)) {  // the first k values are always among the best so far
    for (; i < n && size_ < k_; ++i) Add(KeyOf(x[i], first + static_cast<int32_t>(i)));
    Cut();
  }
  while (i < n) {
    float limit = bound;
    if (cut_ &&
        !(bound > ValueOf(last()))) {  // of equal values, the one with the lower index is better
      limit = first + i > IndexOf(last()) ? ValueOf(last()) : JustBelow(ValueOf(last()));
    }
    const int64_t room = std::min(kScanIndices, capacity_ - size_) + simd::kScanSlack;
    int64_t found = 0;
    i = table.scan(x, i, n, limit, hits, room, &found);
    for (int64_t h = 0; h < found; ++h) Add(KeyOf(x[hits[h]], first + hits[h]));
    CutIfWorthwhile();
  }
}

void Best::AddAll(const Best& other) {
  for (int64_t i = 0; i < other.size_; ++i) Add(other.keys_[i]);
}

void Best::Cut() {
  if (size_ < k_) return;
  std::nth_element(keys_, keys_ + k_ - 1, keys_ + size_, std::greater<>());
  size_ = k_;
  cut_ = true;
}

void Best::Sort() {
  Cut();
  std::sort(keys_, keys_ + size_, std::greater<>());
}

}  // namespace sluice::kernels
