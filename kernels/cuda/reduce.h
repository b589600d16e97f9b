// Reductions whose order depends only on the number of threads. Device code only.
#pragma once

#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {

struct Plus {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};

struct Max {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};

struct Min {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return b < a ? b : a;
  }
};

// Reduces over groups of kWidth (a power of two) neighbouring lanes; every lane gets its group's
// result.
template <int32_t kWidth = kWarp, typename T, typename Combine>
__device__ inline T LaneReduce(T value, Combine combine) {
  for (int32_t mask = kWidth / 2; mask > 0; mask /= 2) {
    value = combine(value, ShuffleXor(value, mask));
  }
  return value;
}

// Reduces over the block; every thread gets the result. `scratch` is shared memory that must not be
// used otherwise until all threads have returned.
template <typename T, typename Combine>
__device__ inline T BlockReduce(T value, Combine combine, T (&scratch)[kWarp]) {
  value = LaneReduce(value, combine);
  SyncBlock();
  if (Lane() == 0) scratch[Warp()] = value;
  SyncBlock();
  value = scratch[0];
  for (int32_t warp = 1; warp < BlockThreads() / kWarp; ++warp) {
    value = combine(value, scratch[warp]);
  }
  return value;
}

// Returns the sum of the values of the threads before this one; *total receives the sum of all. T
// is an integer.
template <typename T>
__device__ inline T BlockSumBefore(T value, T (&scratch)[kWarp], T* total) {
  T sum = value;  // sum of the lanes up to this one
  for (int32_t delta = 1; delta < kWarp; delta *= 2) {
    const T below = ShuffleUp(sum, delta);
    if (Lane() >= delta) sum += below;
  }
  SyncBlock();
  if (Lane() == kWarp - 1) scratch[Warp()] = sum;
  SyncBlock();
  T before = sum - value;
  *total = 0;
  for (int32_t warp = 0; warp < BlockThreads() / kWarp; ++warp) {
    if (warp < Warp()) before += scratch[warp];
    *total += scratch[warp];
  }
  return before;
}

}  // namespace sluice::kernels::cuda
