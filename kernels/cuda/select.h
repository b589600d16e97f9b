// Selection in a row, by one block. Device code only.
//
// Elements have unique keys (orderable value, lower index first). The k-th largest is found digit
// by digit, with a histogram of each digit. To find the element where a cumulative weight is
// exceeded, segments are summed if the row is in the order of the sum; otherwise the value is
// bisected. Weights are integers, so their sums do not depend on the order of threads, nor on the
// number of threads, nor on the place of the elements in global or shared memory.
#pragma once

#include <cmath>

#include "kernels/cuda/reduce.h"
#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {

inline constexpr int32_t kDigitBits = 8, kBins = 1 << kDigitBits;
inline constexpr int32_t kMaxSelectThreads = 512;  // of a block; at least one for each bin
inline constexpr int32_t kMaxInShared = 1024;      // the keys that shared memory holds

struct SelectShared {
  uint64_t keys[kMaxInShared];
  uint64_t segments[kMaxSelectThreads];  // the sum of each segment's weights
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

// Returns bits that order floats as integers; those of NaN are lowest.
__device__ inline uint32_t OrderableOf(float value) {
  if (value != value) return 0;
  value += 0.0f;  // -0 ties with 0
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

// Returns a key that orders by value, then by descending index. Keys are unique in a row.
__device__ inline uint64_t KeyOf(uint32_t orderable, int32_t index) {
  return static_cast<uint64_t>(orderable) << 32 | static_cast<uint32_t>(~index);
}
__device__ inline uint64_t KeyOf(float value, int32_t index) {
  return KeyOf(OrderableOf(value), index);
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

// The elements of a row have three forms. All threads of a block call ForAll together; it calls
// f(present, key) equally often in all lanes of a warp. ForEach calls f(key) for the elements only.
//
// A row in global memory.
template <int32_t kBlockThreads>
struct MemoryRow {
  static constexpr int32_t kThreads = kBlockThreads;
  static constexpr bool kSorted = false, kNear = false;

  __device__ MemoryRow(const float* values, int32_t count, float*) : x(values), n(count) {}

  __device__ uint64_t Key(int32_t i) const { return KeyOf(x[i], i); }
  template <typename Function>
  __device__ void ForAll(Function f) const {
    SLUICE_ROLLED
    for (int32_t first = 0; first < n; first += kThreads) {
      const int32_t i = first + ThreadIndex();
      f(i < n, i < n ? Key(i) : 0);
    }
  }
  template <typename Function>
  __device__ void ForEach(Function f) const {
    for (int32_t i = ThreadIndex(); i < n; i += kThreads) f(Key(i));
  }

  const float* x;  // [n], in the order of their indices
  int32_t n;
};

// A row that the block has copied to shared memory. All threads of the block construct it together.
template <int32_t kBlockThreads>
struct NearRow : MemoryRow<kBlockThreads> {
  static constexpr bool kNear = true;

  __device__ NearRow(const float* values, int32_t count, float* near)
      : MemoryRow<kBlockThreads>(near, count, near) {
    SyncBlock();  // no thread still reads an earlier row
    for (int32_t i = ThreadIndex(); i < count; i += kBlockThreads) near[i] = values[i];
    SyncBlock();
  }
};

// Some elements of a row, in descending order, in memory that the block has written.
template <int32_t kBlockThreads>
struct SortedRow {
  static constexpr int32_t kThreads = kBlockThreads;
  static constexpr bool kSorted = true, kNear = true;

  __device__ uint64_t Key(int32_t i) const { return keys[i]; }
  template <typename Function>
  __device__ void ForEach(Function f) const {
    for (int32_t i = ThreadIndex(); i < n; i += kThreads) f(keys[i]);
  }

  const uint64_t* keys;  // [n]
  int32_t n;
};

// Reduces integers over a block of kThreads threads; every thread gets the result. The order of
// combining does not matter for integers. `scratch` is as for BlockReduce.
template <int32_t kThreads, typename T, typename Combine>
__device__ inline T ReduceIntegers(T value, Combine combine, T (&scratch)[kWarp]) {
  constexpr int32_t kWarps = kThreads / kWarp;
  value = LaneReduce(value, combine);
  SyncBlock();
  if (Lane() == 0) scratch[Warp()] = value;
  SyncBlock();
  return LaneReduce<kWarps>(scratch[Lane() % kWarps], combine);
}

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
template <typename Elements, typename Function>
__device__ inline uint64_t SumOver(const Elements& row, SelectShared& shared, Function f) {
  uint64_t sum = 0;
  row.ForEach([&](uint64_t key) { sum += f(key); });
  return ReduceIntegers<Elements::kThreads>(sum, Plus(), shared.reduce);
}

template <typename Elements>
__device__ inline uint64_t TotalWeight(const Elements& row, const Weighing& weighing,
                                       SelectShared& shared) {
  return SumOver(row, shared, [&](uint64_t key) { return weighing.WeightOf(key); });
}

// Sets shared.segments to the weights of `length` elements each. One warp sums a segment.
template <typename Elements>
__device__ inline void SumSegments(const Elements& row, const Weighing& weighing, int32_t length,
                                   SelectShared& shared) {
  constexpr int32_t kSegments = Elements::kThreads;
  for (int32_t s = Warp(); s < kSegments; s += Elements::kThreads / kWarp) {
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
template <typename Elements, typename Target>
__device__ inline uint64_t FindInOrder(const Elements& row, const Weighing& weighing,
                                       SelectShared& shared, Target target_of) {
  constexpr int32_t kThreads = Elements::kThreads, kOnce = kThreads * kWarp;
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
  const int32_t segment = shared.place;
  SyncBlock();  // all threads have read the place
  // One warp searches the segment.
  if (Warp() == 0) {
    for (int32_t first = segment;; first += kWarp) {
      const int32_t i = first + Lane();
      const uint64_t own = i < row.n ? weighing.WeightOf(row.Key(i)) : 0;
      uint64_t until = own;  // the sum of the lanes up to this one
      for (int32_t delta = 1; delta < kWarp; delta *= 2) {
        const uint64_t below = ShuffleUp(until, delta);
        if (Lane() >= delta) until += below;
      }
      if (until - own <= target && target < until) shared.place = i;
      const uint64_t sum = Shuffle(until, kWarp - 1);
      if (target < sum) break;
      target -= sum;
    }
  }
  SyncBlock();
  return row.Key(shared.place);  // the barriers of the next search come before the next write
}

// Like FindInOrder, with the weights summed by descending key.
template <typename Elements>
__device__ inline uint64_t FindDescending(const Elements& row, Weighing weighing, uint64_t target,
                                          SelectShared& shared) {
  constexpr int32_t kThreads = Elements::kThreads;
  const auto rest = [&target](uint64_t) { return target; };
  if constexpr (Elements::kSorted) {
    return FindInOrder(row, weighing, shared, rest);
  } else {
    // The bits that are the same in all values that have weight are known from the start.
    uint32_t least = ~uint32_t{0}, most = 0;
    int32_t own = 0;  // the thread's elements between `value` and `end`
    row.ForEach([&](uint64_t key) {
      if (weighing.WeightOf(key) == 0) return;
      ++own;
      const auto orderable = static_cast<uint32_t>(key >> 32);
      least = orderable < least ? orderable : least;
      most = orderable > most ? orderable : most;
    });
    const uint64_t ends =
        ReduceIntegers<kThreads>(static_cast<uint64_t>(~least) << 32, Max(), shared.reduce);
    most = static_cast<uint32_t>(
        ReduceIntegers<kThreads>(static_cast<uint64_t>(most), Max(), shared.reduce));
    least = ~static_cast<uint32_t>(ends >> 32);
    // The elements with an orderable value of at least `value` exceed the target; the ones from
    // `end` on, whose weight is `before`, do not.
    uint64_t before = 0;
    int32_t bits = 0;
    while (bits < 32 && (least >> bits) != (most >> bits)) ++bits;
    uint32_t value = bits < 32 ? least >> bits << bits : 0;
    uint64_t end = static_cast<uint64_t>(value) + (uint64_t{1} << bits);
    for (int32_t bit = bits - 1; bit >= 0; --bit) {
      // Only the elements between the middle and the end are weighed. Most threads soon have none.
      const uint32_t middle = value + (uint32_t{1} << bit);
      uint64_t sum = 0;
      int32_t above = 0;
      if (own > 0) {
        row.ForEach([&](uint64_t key) {
          const auto orderable = static_cast<uint32_t>(key >> 32);
          if (orderable < middle || orderable >= end) return;
          const uint64_t weight = weighing.WeightOf(key);
          sum += weight;
          above += weight != 0;
        });
      }
      sum = before + ReduceIntegers<kThreads>(sum, Plus(), shared.reduce);
      if (sum > target) {
        value = middle;
        own = above;
      } else {
        before = sum;
        end = middle;
        own -= above;
      }
    }
    // Elements of this value are ordered by index. Mostly there is only one.
    const uint64_t lowest = static_cast<uint64_t>(value) << 32, highest = lowest | 0xFFFFFFFFu;
    weighing.least_key = weighing.least_key > lowest ? weighing.least_key : lowest;
    weighing.most_key = highest;
    uint64_t largest = 0, count = 0;
    row.ForEach([&](uint64_t key) {
      if (key < weighing.least_key || key > highest) return;
      largest = key > largest ? key : largest;
      ++count;
    });
    count = ReduceIntegers<kThreads>(count, Plus(), shared.reduce);
    largest = ReduceIntegers<kThreads>(largest, Max(), shared.reduce);
    if (count == 1) return largest;
    target -= before;
    return FindInOrder(row, weighing, shared, rest);
  }
}

// Counts the digits of a warp's lanes. Makes one addition for each distinct digit, since neighbours
// often have the same one. A lane without a digit passes kBins. Collective.
__device__ inline void CountDigits(int32_t digit, int32_t (&counts)[kBins]) {
  const uint32_t same = MatchLanes(static_cast<uint32_t>(digit)), below = (1u << Lane()) - 1;
  if (digit < kBins && (same & below) == 0) AtomicAdd(&counts[digit], CountBits(same));
}

// Returns the k-th largest key. Requires 1 <= k <= n.
template <typename Elements>
__device__ inline uint64_t KthKey(const Elements& row, int32_t k, SelectShared& shared) {
  static_assert(Elements::kThreads >= kBins);
  const int32_t bin = kBins - 1 - ThreadIndex();  // negative for threads without a bin
  uint64_t prefix = 0;
  int32_t above = k - 1;  // how many keys with this prefix are above the k-th key
  for (int32_t shift = 64 - kDigitBits;; shift -= kDigitBits) {
    if (bin >= 0) shared.counts[bin] = 0;
    SyncBlock();
    row.ForAll([&](bool present, uint64_t key) {
      const uint64_t digits = key >> shift;
      const bool counts = present && digits >> kDigitBits == prefix;
      CountDigits(counts ? static_cast<int32_t>(digits % kBins) : kBins, shared.counts);
    });
    SyncBlock();
    int32_t total;
    const int32_t count = bin >= 0 ? shared.counts[bin] : 0;
    const int32_t before = BlockSumBefore(count, shared.reduce_counts, &total);
    if (before <= above && above - before < count) shared.chosen = {before, bin, count};
    SyncBlock();
    above -= shared.chosen.before;
    prefix = prefix << kDigitBits | static_cast<uint64_t>(shared.chosen.bin);
    const bool lowest = above == shared.chosen.count - 1;  // of the keys with this prefix
    if (!lowest && shift > 0) continue;
    uint64_t least = ~uint64_t{0};
    row.ForEach([&](uint64_t key) {
      if (key >> shift == prefix && key < least) least = key;
    });
    return ReduceIntegers<Elements::kThreads>(least, Min(), shared.reduce);
  }
}

// Sorts keys in memory of the block in descending order. Uses bitonic merging (Batcher, AFIPS 1968)
// with all comparisons in one direction, so n need not be a power of two.
template <int32_t kThreads>
__device__ inline void BlockSort(uint64_t* keys, int32_t n) {
  const auto order = [keys, n](int32_t a, int32_t b) {
    if (b >= n || keys[a] >= keys[b]) return;
    const uint64_t smaller = keys[a];
    keys[a] = keys[b];
    keys[b] = smaller;
  };
  for (int32_t half = 1; half < n; half *= 2) {
    for (int32_t i = ThreadIndex(); i < n; i += kThreads) {
      const int32_t offset = i & (half - 1);  // in the lower half of a run of 2 half
      if ((i & half) == 0) order(i, i - offset + 2 * half - 1 - offset);
    }
    SyncBlock();
    for (int32_t distance = half / 2; distance >= 1; distance /= 2) {
      for (int32_t i = ThreadIndex(); i < n; i += kThreads) {
        if ((i & distance) == 0) order(i, i + distance);
      }
      SyncBlock();
    }
  }
}

// Returns the largest `count` elements in descending order. Up to kMaxInShared elements are in
// shared.keys, more are in `scratch` [count]. Requires 1 <= count <= n.
template <typename Elements>
__device__ inline SortedRow<Elements::kThreads> Largest(const Elements& row, int32_t count,
                                                        uint64_t* scratch, SelectShared& shared) {
  uint64_t* const keys = count <= kMaxInShared ? shared.keys : scratch;
  const uint64_t least = count < row.n ? KthKey(row, count, shared) : 0;
  SyncBlock();  // no thread still reads an earlier result
  if (ThreadIndex() == 0) shared.collected = 0;
  SyncBlock();
  row.ForEach([&](uint64_t key) {
    if (key >= least) keys[AtomicAdd(&shared.collected, 1)] = key;
  });
  SyncBlock();
  BlockSort<Elements::kThreads>(keys, count);
  return {keys, count};
}

}  // namespace sluice::kernels::cuda
