#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

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

}  // namespace

int64_t TopKScratch(int64_t n, int64_t k) { return Capacity(n, k); }

void TopK(Profile profile, const float* x, int64_t n, int64_t k, float* values, int32_t* ids,
          uint64_t* scratch) {
  SLUICE_CHECK(1 <= k && k <= n);
  const simd::Table& table = simd::TableFor(profile);
  const int64_t capacity = Capacity(n, k);
  int64_t size = std::min(n, k);
  for (int64_t i = 0; i < size; ++i) scratch[i] = KeyOf(x[i], static_cast<int32_t>(i));
  uint64_t* const last = scratch + k - 1;  // the k-th best once cut back
  std::nth_element(scratch, last, scratch + size, std::greater<>());

  int32_t hits[kScanIndices + simd::kScanSlack];
  for (int64_t i = size; i < n;) {
    const float bound = x[IndexOf(*last)];
    int64_t found = 0;
    const int64_t room = std::min(kScanIndices, capacity - size) + simd::kScanSlack;
    i = table.scan(x, i, n, bound, hits, room, &found);
    for (int64_t h = 0; h < found; ++h) {
      const uint64_t key = KeyOf(x[hits[h]], hits[h]);
      if (key <= *last) continue;
      if (size == capacity) {
        std::nth_element(scratch, last, scratch + size, std::greater<>());
        size = k;
        if (key <= *last) continue;
      }
      scratch[size++] = key;
    }
    // A tighter bound pays as soon as a quarter of the room is used.
    if (size - k >= (capacity - k + 3) / 4) {
      std::nth_element(scratch, last, scratch + size, std::greater<>());
      size = k;
    }
  }
  std::nth_element(scratch, last, scratch + size, std::greater<>());
  std::sort(scratch, scratch + k, std::greater<>());
  for (int64_t i = 0; i < k; ++i) {
    ids[i] = IndexOf(scratch[i]);
    if (values != nullptr) values[i] = x[ids[i]];
  }
}

}  // namespace sluice::kernels
