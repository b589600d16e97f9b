// Selection in a row, by one block of kSelectThreads threads. Device code only.
//
// Elements have unique keys (orderable value, lower index first). The k-th largest is found digit
// by digit, with a histogram of each digit. To find the element where a cumulative weight is
// exceeded, segments are summed if the row is in the order of the sum; otherwise the value is
// bisected. Weights are integers, so their sums do not depend on the order of threads.
#pragma once

#include <cmath>

#include "kernels/cuda/reduce.h"
#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {

inline constexpr int32_t kDigitBits = 8, kBins = 1 << kDigitBits;
inline constexpr int32_t kSelectThreads = kBins;      // one for each bin
inline constexpr int32_t kSegments = kSelectThreads;  // segments of a row whose weights are summed
inline constexpr int32_t kMaxInShared = 1024;         // the keys that shared memory holds

struct SelectShared {
  uint64_t keys[kMaxInShared];
  uint64_t segments[kSegments];  // the sum of each segment's weights
  int32_t counts[kBins];
  uint64_t reduce[kWarp];
  int32_t reduce_counts[kWarp];
  struct {
    int32_t before;  // number of elements in the bins above
    int32_t bin, count;
  } chosen;
  uint64_t before;  // weight of the segments before the chosen one
  int32_t place;    // of the chosen segment, then of the element in the row
  int32_t collected;
};

// Returns a key that orders by value, then by descending index; NaN is lowest. Keys are unique in a
// row.
__device__ inline uint64_t KeyOf(float value, int32_t index) {
  uint32_t orderable = 0;
  if (value == value) {
    value += 0.0f;  // -0 ties with 0
    uint32_t bits;
    __builtin_memcpy(&bits, &value, sizeof(bits));
    orderable = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
  }
  return static_cast<uint64_t>(orderable) << 32 | static_cast<uint32_t>(~index);
}

__device__ inline int32_t IndexOf(uint64_t key) {
  return static_cast<int32_t>(~static_cast<uint32_t>(key));
}

// Returns the value of a key that is not of a NaN.
__device__ inline float ValueOf(uint64_t key) {
  const auto orderable = static_cast<uint32_t>(key >> 32);
  const uint32_t bits = (orderable >> 31) != 0 ? orderable & 0x7FFFFFFFu : ~orderable;
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

// The elements of a row, or some of them.
struct Row {
  const float* x;  // [n], in the order of their indices
  int32_t n;
  const uint64_t* keys = nullptr;  // [n] if not nullptr: the elements in place of x, sorted

  __device__ uint64_t Key(int32_t i) const { return keys == nullptr ? KeyOf(x[i], i) : keys[i]; }
};

// The weight of each element of a row that holds no NaN.
struct Weighing {
  float largest;                     // the largest value of the row
  float divisor;                     // the temperature
  float least_weight = 0;            // elements of less weight have weight 0
  uint64_t least_key = 0;            // elements with lower keys have weight 0
  uint64_t most_key = ~uint64_t{0};  // elements with higher keys have weight 0
  // Elements whose logarithm of the weight is farther than this from the centre have weight 0.
  float most_distance = INFINITY;
  float centre = 0;

  __device__ float LogWeight(uint64_t key) const { return (ValueOf(key) - largest) / divisor; }
  __device__ uint64_t WeightOf(uint64_t key) const {
    constexpr float kUnits = 1099511627776.0f;  // 2^40
    if (key < least_key || key > most_key) return 0;
    const float log_weight = LogWeight(key), weight = expf(log_weight);
    if (weight < least_weight || fabsf(log_weight - centre) > most_distance) return 0;
    return static_cast<uint64_t>(weight * kUnits);
  }
};

// Returns the sum of f(key) over the row.
template <typename Function>
__device__ inline uint64_t SumOver(const Row& row, SelectShared& shared, Function f) {
  uint64_t sum = 0;
  for (int32_t i = ThreadIndex(); i < row.n; i += kSelectThreads) sum += f(row.Key(i));
  return BlockReduce(sum, Plus(), shared.reduce);
}

__device__ inline uint64_t TotalWeight(const Row& row, const Weighing& weighing,
                                       SelectShared& shared) {
  return SumOver(row, shared, [&](uint64_t key) { return weighing.WeightOf(key); });
}

// Sets shared.segments to the weights of `length` elements each. One warp sums a segment.
__device__ inline void SumSegments(const Row& row, const Weighing& weighing, int32_t length,
                                   SelectShared& shared) {
  for (int32_t s = Warp(); s < kSegments; s += kSelectThreads / kWarp) {
    uint64_t sum = 0;
    for (int32_t i = Lane(); i < length && s * length + i < row.n; i += kWarp) {
      sum += weighing.WeightOf(row.Key(s * length + i));
    }
    sum = LaneReduce(sum, Plus());
    if (Lane() == 0) shared.segments[s] = sum;
  }
  SyncBlock();
}

// Returns the key of the first element where the sum of weights, in the order of the row, exceeds
// target(total). Requires 0 <= target(total) < total, the sum of all weights.
template <typename Target>
__device__ inline uint64_t FindInOrder(const Row& row, const Weighing& weighing,
                                       SelectShared& shared, Target target_of) {
  constexpr int32_t kOnce = kSegments * kWarp;
  const int32_t length = (row.n + kOnce - 1) / kOnce * kWarp;
  SumSegments(row, weighing, length, shared);
  uint64_t total;
  const uint64_t weight = shared.segments[ThreadIndex()];
  const uint64_t before = BlockSumBefore(weight, shared.reduce, &total);
  uint64_t target = target_of(total);
  if (before <= target && target - before < weight) {
    shared.before = before;
    shared.place = ThreadIndex() * length;
  }
  SyncBlock();
  target -= shared.before;
  for (int32_t first = shared.place;; first += kSelectThreads) {
    const int32_t i = first + ThreadIndex();
    const uint64_t own = i < row.n ? weighing.WeightOf(row.Key(i)) : 0;
    const uint64_t until = BlockSumBefore(own, shared.reduce, &total);
    if (until <= target && target - until < own) shared.place = i;
    SyncBlock();
    if (target < total) break;
    target -= total;
  }
  return row.Key(shared.place);  // the barriers of the next search come before the next write
}

// Like FindInOrder, with the weights summed by descending key.
__device__ inline uint64_t FindDescending(const Row& row, Weighing weighing, uint64_t target,
                                          SelectShared& shared) {
  const auto rest = [&target](uint64_t) { return target; };
  if (row.keys != nullptr) return FindInOrder(row, weighing, shared, rest);
  constexpr int32_t kBits = 2, kThresholds = (1 << kBits) - 1;
  uint32_t value = 0;   // the elements with this orderable value or more exceed the target
  uint64_t before = 0;  // the weight of the elements that are known to be above
  for (int32_t shift = 32 - kBits; shift >= 0; shift -= kBits) {
    uint64_t sums[kThresholds] = {};
    for (int32_t i = ThreadIndex(); i < row.n; i += kSelectThreads) {
      const uint64_t key = row.Key(i), weight = weighing.WeightOf(key);
      SLUICE_UNROLL
      for (uint32_t t = 0; t < kThresholds; ++t) {
        if (static_cast<uint32_t>(key >> 32) >= value + ((t + 1) << shift)) sums[t] += weight;
      }
    }
    uint32_t digit = 0;
    SLUICE_UNROLL
    for (uint32_t t = 0; t < kThresholds; ++t) {
      sums[t] = BlockReduce(sums[t], Plus(), shared.reduce);
      if (sums[t] > target) digit = t + 1;
    }
    SLUICE_UNROLL
    for (uint32_t t = 0; t < kThresholds; ++t) before = digit == t ? sums[t] : before;
    value += digit << shift;
  }
  // Elements of this value are ordered by index.
  const uint64_t least = static_cast<uint64_t>(value) << 32;
  weighing.least_key = weighing.least_key > least ? weighing.least_key : least;
  weighing.most_key = least | 0xFFFFFFFFu;
  target -= before;
  return FindInOrder(row, weighing, shared, rest);
}

// Counts the digits of a warp's lanes. Makes one addition for each distinct digit, since neighbours
// often have the same one. A lane without a digit passes kBins. Collective.
__device__ inline void CountDigits(int32_t digit, int32_t (&counts)[kBins]) {
  const uint32_t same = MatchLanes(static_cast<uint32_t>(digit)), below = (1u << Lane()) - 1;
  if (digit < kBins && (same & below) == 0) AtomicAdd(&counts[digit], CountBits(same));
}

// Returns the k-th largest key. Requires 1 <= k <= n.
__device__ inline uint64_t KthKey(const Row& row, int32_t k, SelectShared& shared) {
  const int32_t bin = kBins - 1 - ThreadIndex();
  uint64_t prefix = 0;
  int32_t above = k - 1;  // how many keys with this prefix are above the k-th key
  for (int32_t shift = 64 - kDigitBits;; shift -= kDigitBits) {
    shared.counts[bin] = 0;
    SyncBlock();
    SLUICE_ROLLED
    for (int32_t first = 0; first < row.n; first += kSelectThreads) {
      const int32_t i = first + ThreadIndex();
      const uint64_t digits = i < row.n ? row.Key(i) >> shift : 0;
      const bool counts = i < row.n && digits >> kDigitBits == prefix;
      CountDigits(counts ? static_cast<int32_t>(digits % kBins) : kBins, shared.counts);
    }
    SyncBlock();
    int32_t total;
    const int32_t count = shared.counts[bin];
    const int32_t before = BlockSumBefore(count, shared.reduce_counts, &total);
    if (before <= above && above - before < count) shared.chosen = {before, bin, count};
    SyncBlock();
    above -= shared.chosen.before;
    prefix = prefix << kDigitBits | static_cast<uint64_t>(shared.chosen.bin);
    const bool lowest = above == shared.chosen.count - 1;  // of the keys with this prefix
    if (!lowest && shift > 0) continue;
    uint64_t least = ~uint64_t{0};
    for (int32_t i = ThreadIndex(); i < row.n; i += kSelectThreads) {
      const uint64_t key = row.Key(i);
      if (key >> shift == prefix && key < least) least = key;
    }
    return BlockReduce(least, Min(), shared.reduce);
  }
}

// Sorts keys in memory of the block in descending order. Uses bitonic merging (Batcher, AFIPS 1968)
// with all comparisons in one direction, so n need not be a power of two.
__device__ inline void BlockSort(uint64_t* keys, int32_t n) {
  const auto order = [keys, n](int32_t a, int32_t b) {
    if (b >= n || keys[a] >= keys[b]) return;
    const uint64_t smaller = keys[a];
    keys[a] = keys[b];
    keys[b] = smaller;
  };
  for (int32_t half = 1; half < n; half *= 2) {
    for (int32_t i = ThreadIndex(); i < n; i += kSelectThreads) {
      const int32_t offset = i & (half - 1);  // in the lower half of a run of 2 half
      if ((i & half) == 0) order(i, i - offset + 2 * half - 1 - offset);
    }
    SyncBlock();
    for (int32_t distance = half / 2; distance >= 1; distance /= 2) {
      for (int32_t i = ThreadIndex(); i < n; i += kSelectThreads) {
        if ((i & distance) == 0) order(i, i + distance);
      }
      SyncBlock();
    }
  }
}

// Returns the largest `count` elements in descending order. Up to kMaxInShared elements are in
// shared.keys, more are in `scratch` [count]. Requires 1 <= count <= n.
__device__ inline Row Largest(const Row& row, int32_t count, uint64_t* scratch,
                              SelectShared& shared) {
  uint64_t* const keys = count <= kMaxInShared ? shared.keys : scratch;
  const uint64_t least = count < row.n ? KthKey(row, count, shared) : 0;
  SyncBlock();  // no thread still reads an earlier result
  if (ThreadIndex() == 0) shared.collected = 0;
  SyncBlock();
  for (int32_t i = ThreadIndex(); i < row.n; i += kSelectThreads) {
    const uint64_t key = row.Key(i);
    if (key >= least) keys[AtomicAdd(&shared.collected, 1)] = key;
  }
  SyncBlock();
  BlockSort(keys, count);
  return {row.x, count, keys};
}

}  // namespace sluice::kernels::cuda
