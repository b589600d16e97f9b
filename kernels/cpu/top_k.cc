#include <algorithm>
#include <functional>
#include <limits>

#include "base/check.h"
#include "kernels/cpu/best.h"
#include "kernels/cpu/sample.h"
#include "kernels/cpu/simd/dispatch.h"

namespace sluice::kernels {
namespace {

int64_t Capacity(int64_t n, int64_t k) { return std::min(n, 2 * k + 256); }

// The number of values in a group. If there are many more groups than k, only the largest value of
// each group is examined at first.
constexpr int64_t kGroup = 128;

int64_t Groups(int64_t n) { return (n + kGroup - 1) / kGroup; }
bool InGroups(int64_t n, int64_t k) { return Groups(n) >= 2 * k && n >= 16 * kGroup; }

float LargestOf(const simd::Table& table, const float* x, int64_t n, int64_t group) {
  return table.max(x + group * kGroup, std::min(kGroup, n - group * kGroup));
}

// Adds the values of the k groups with the largest maxima. These groups contain the k best values:
// no value of another group is above these k maxima, and of equal values the one with the lower
// index is better. Returns false and adds nothing if fewer than k groups have a value above -inf.
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
    const bool out =
        best.cut() && groups[g] >> 32 < best.last() >> 32;  // the group's largest value is rejected
    if (out) break;
    const int64_t first = IndexOf(groups[g]) * kGroup;
    best.AddRange(table, x + first, static_cast<int32_t>(first), std::min(kGroup, n - first),
                  JustBelow(least));
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
    best.AddRange(table, x, 0, n, std::numeric_limits<float>::quiet_NaN());
  }
  best.Sort();
  for (int64_t i = 0; i < k; ++i) {
    ids[i] = IndexOf(best.key(i));
    if (values != nullptr) values[i] = x[ids[i]];
  }
}

}  // namespace sluice::kernels
