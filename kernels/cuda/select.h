// Selection in a row without sorting it, by one block of kSelectThreads threads. Device code only.
//
// Elements have unique keys (orderable value, lower index first), so the k-th largest, or the
// element at which a cumulative weight is exceeded, is found by descending through the digits of
// the key with a histogram of each. Weights are integers, whose sums do not depend on the order of
// threads.
#pragma once

#include <cmath>

#include "kernels/cuda/reduce.h"
#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {

inline constexpr int32_t kDigitBits = 8, kBins = 1 << kDigitBits;
inline constexpr int32_t kSelectThreads = kBins;  // one for each bin

struct SelectShared {
  uint64_t weights[kBins];
  int32_t counts[kBins];
  uint64_t reduce[kWarp];
  struct {
    uint64_t before;  // weight of the bins above
    int32_t bin, count;
  } chosen;
  uint64_t found;
  int32_t collected;
};

struct Row {
  const float* x;
  int32_t n;
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

// The weight of each element of a row, and the order of the elements.
struct Weighing {
  float largest;           // the largest value of the row
  float divisor = 0;       // 0 gives every element weight 1; otherwise this is the temperature
  float least_weight = 0;  // elements of less weight have weight 0
  uint64_t least_key = 0;  // elements with lower keys have weight 0
  bool by_index = false;   // whether the order is by ascending index instead of descending key

  __device__ uint64_t WeightOf(float x, uint64_t key) const {
    constexpr float kUnits = 1099511627776.0f;  // 2^40
    if (key < least_key) return 0;
    if (divisor == 0) return 1;
    const float weight = expf((x - largest) / divisor);
    return weight < least_weight ? 0 : static_cast<uint64_t>(weight * kUnits);
  }
  // Returns the element's rank, which descends in the order.
  __device__ uint64_t RankOf(uint64_t key) const { return by_index ? key & 0xFFFFFFFFu : key; }
  __device__ int32_t FirstShift() const { return (by_index ? 32 : 64) - kDigitBits; }
};

__device__ inline uint64_t TotalWeight(const Row& row, const Weighing& weighing,
                                       SelectShared& shared) {
  uint64_t total = 0;
  for (int32_t i = ThreadIndex(); i < row.n; i += kSelectThreads) {
    total += weighing.WeightOf(row.x[i], KeyOf(row.x[i], i));
  }
  return BlockReduce(total, Plus(), shared.reduce);
}

// Sums the weights of the elements whose rank begins with `prefix`, by the next digit.
__device__ inline void FillBins(const Row& row, const Weighing& weighing, int32_t shift,
                                uint64_t prefix, SelectShared& shared) {
  const int32_t bin = kBins - 1 - ThreadIndex();
  shared.weights[bin] = 0;
  shared.counts[bin] = 0;
  SyncBlock();
  for (int32_t i = ThreadIndex(); i < row.n; i += kSelectThreads) {
    const uint64_t key = KeyOf(row.x[i], i), digits = weighing.RankOf(key) >> shift;
    if (digits >> kDigitBits != prefix) continue;
    const uint64_t weight = weighing.WeightOf(row.x[i], key);
    if (weight == 0) continue;
    AtomicAdd(&shared.weights[digits % kBins], weight);
    AtomicAdd(&shared.counts[digits % kBins], 1);
  }
  SyncBlock();
}

// Returns the key of the element at which the weights, summed in order, exceed `target`. Requires
// `target` to be below their total.
__device__ inline uint64_t Find(const Row& row, const Weighing& weighing, uint64_t target,
                                SelectShared& shared) {
  const int32_t bin = kBins - 1 - ThreadIndex();
  uint64_t prefix = 0;
  int32_t shift = weighing.FirstShift();
  while (true) {
    FillBins(row, weighing, shift, prefix, shared);
    uint64_t total;
    const uint64_t weight = shared.weights[bin];
    const uint64_t before = BlockSumBefore(weight, shared.reduce, &total);
    if (before <= target && target - before < weight) {
      shared.chosen = {before, bin, shared.counts[bin]};
    }
    SyncBlock();
    target -= shared.chosen.before;
    prefix = prefix << kDigitBits | static_cast<uint64_t>(shared.chosen.bin);
    if (shared.chosen.count == 1 || shift == 0) break;
    shift -= kDigitBits;
  }
  for (int32_t i = ThreadIndex(); i < row.n; i += kSelectThreads) {
    const uint64_t key = KeyOf(row.x[i], i);
    if (weighing.RankOf(key) >> shift != prefix) continue;
    if (weighing.WeightOf(row.x[i], key) != 0) shared.found = key;
  }
  SyncBlock();
  return shared.found;  // the next write comes after barriers of the next search
}

// Returns the k-th largest key. Requires 1 <= k <= n.
__device__ inline uint64_t KthKey(const Row& row, int32_t k, SelectShared& shared) {
  return Find(row, {.largest = 0}, static_cast<uint64_t>(k) - 1, shared);
}

// Calls write(rank, index) for the largest `count` elements; each element finds its rank among
// them. Requires 1 <= count <= n. keys: [count] of scratch in global memory.
template <typename Write>
__device__ inline void ForLargest(const Row& row, int32_t count, uint64_t* keys,
                                  SelectShared& shared, Write write) {
  const uint64_t least = KthKey(row, count, shared);
  if (ThreadIndex() == 0) shared.collected = 0;
  SyncBlock();
  for (int32_t i = ThreadIndex(); i < row.n; i += kSelectThreads) {
    const uint64_t key = KeyOf(row.x[i], i);
    if (key >= least) keys[AtomicAdd(&shared.collected, 1)] = key;
  }
  SyncBlock();
  for (int32_t i = ThreadIndex(); i < count; i += kSelectThreads) {
    int32_t rank = 0;
    for (int32_t j = 0; j < count; ++j) rank += keys[j] > keys[i] ? 1 : 0;
    write(rank, IndexOf(keys[i]));
  }
}

}  // namespace sluice::kernels::cuda
