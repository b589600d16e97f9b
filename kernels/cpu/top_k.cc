#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "kernels/check.h"
#include "kernels/cpu/sample.h"
#include "kernels/cpu/simd/dispatch.h"

namespace sluice::kernels {
namespace {

// Keys order as (value, lower index first): the value's bits made monotonic above the inverted
// index.
uint64_t KeyOf(float value, int32_t index) {
  uint32_t orderable = 0;  // NaN, below -inf
  if (!std::isnan(value)) {
    const uint32_t bits = std::bit_cast<uint32_t>(value + 0.0f);  // -0 ties with 0
    orderable = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
  }
  return uint64_t{orderable} << 32 | static_cast<uint32_t>(~index);
}

int32_t IndexOf(uint64_t key) { return static_cast<int32_t>(~static_cast<uint32_t>(key)); }

// Candidates gathered before they are cut back to k: enough that cutting costs little per element.
int64_t Capacity(int64_t n, int64_t k) { return std::min(n, 2 * k + 256); }

constexpr int64_t kScanIndices = 256;

// Values of a group, of which the largest is looked at first where groups are many more than k.
constexpr int64_t kGroup = 128;

int64_t Groups(int64_t n) { return (n + kGroup - 1) / kGroup; }
bool InGroups(int64_t n, int64_t k) { return Groups(n) >= 2 * k && n >= 16 * kGroup; }

// The k best keys of all that were added, which must be k at least before the first cut.
class Best {
 public:
  Best(uint64_t* keys, int64_t k, int64_t capacity)
      : keys_(keys), last_(keys + k - 1), k_(k), capacity_(capacity) {}

  void Add(uint64_t key) {
    if (cut_ && key <= *last_) return;
    if (size_ == capacity_) {
      Cut();
      if (key <= *last_) return;
    }
    keys_[size_++] = key;
  }

  // A tighter bound pays as soon as a quarter of the room is used.
  void CutIfWorthwhile() {
    if (size_ - k_ >= (capacity_ - k_ + 3) / 4) Cut();
  }

  // Leaves the k best in no order, the least of them at the end: what is not above it is out.
  void Cut() {
    std::nth_element(keys_, last_, keys_ + size_, std::greater<>());
    size_ = k_;
    cut_ = true;
  }

  bool cut() const { return cut_; }
  uint64_t last() const { return *last_; }
  int64_t room() const { return capacity_ - size_; }

 private:
  uint64_t* const keys_;
  uint64_t* const last_;
  const int64_t k_, capacity_;
  int64_t size_ = 0;
  bool cut_ = false;
};

// The bound of a scan that finds `value` too.
float JustBelow(float value) {
  return std::nextafter(value, -std::numeric_limits<float>::infinity());
}

// Adds what may be among the best of x[begin, end): nothing that is <= bound.
void AddRange(const simd::Table& table, const float* x, int64_t begin, int64_t end, float bound,
              Best& best) {
  int32_t hits[kScanIndices + simd::kScanSlack];
  for (int64_t i = begin; i < end;) {
    float limit = bound;
    if (best.cut()) {
      const int32_t last = IndexOf(best.last());
      limit = i > last ? x[last] : JustBelow(x[last]);  // of equal values, the lower index is in
    }
    const int64_t room = std::min(kScanIndices, best.room()) + simd::kScanSlack;
    int64_t found = 0;
    i = table.scan(x, i, end, limit, hits, room, &found);
    for (int64_t h = 0; h < found; ++h) best.Add(KeyOf(x[hits[h]], hits[h]));
    best.CutIfWorthwhile();
  }
}

float LargestOf(const simd::Table& table, const float* x, int64_t n, int64_t group) {
  return table.max(x + group * kGroup, std::min(kGroup, n - group * kGroup));
}

// The k groups with the largest maxima hold the k best: of any other group, no value is above these k
// maxima, and of equal values the lower index comes first. False, and nothing added, where fewer than
// k groups have a value above -inf.
bool AddFromGroups(const simd::Table& table, const float* x, int64_t n, int64_t k, uint64_t* groups,
                   Best& best) {
  const int64_t count = Groups(n);
  for (int64_t g = 0; g < count; ++g) {
    groups[g] = KeyOf(LargestOf(table, x, n, g), static_cast<int32_t>(g));
  }
  std::nth_element(groups, groups + k - 1, groups + count, std::greater<>());
  std::sort(groups, groups + k, std::greater<>());
  const float least = LargestOf(table, x, n, IndexOf(groups[k - 1]));
  if (least == -std::numeric_limits<float>::infinity()) return false;
  for (int64_t g = 0; g < k; ++g) {
    const bool out = best.cut() && groups[g] >> 32 < best.last() >> 32;  // its largest value is
    if (out) break;
    const int64_t first = IndexOf(groups[g]) * kGroup;
    AddRange(table, x, first, std::min(first + kGroup, n), JustBelow(least), best);
  }
  return true;
}

}  // namespace

int64_t TopKScratch(int64_t n, int64_t k) {
  return Capacity(n, k) + (InGroups(n, k) ? Groups(n) : 0);
}

void TopK(Profile profile, const float* x, int64_t n, int64_t k, float* values, int32_t* ids,
          uint64_t* scratch) {
  SLUICE_CHECK(1 <= k && k <= n);
  const simd::Table& table = simd::TableFor(profile);
  const int64_t capacity = Capacity(n, k);
  Best best(scratch, k, capacity);
  if (!InGroups(n, k) || !AddFromGroups(table, x, n, k, scratch + capacity, best)) {
    for (int64_t i = 0; i < k; ++i) best.Add(KeyOf(x[i], static_cast<int32_t>(i)));
    best.Cut();
    AddRange(table, x, k, n, 0.0f, best);
  }
  best.Cut();
  std::sort(scratch, scratch + k, std::greater<>());
  for (int64_t i = 0; i < k; ++i) {
    ids[i] = IndexOf(scratch[i]);
    if (values != nullptr) values[i] = x[ids[i]];
  }
}

}  // namespace sluice::kernels
