// Inner products. Included by rows.h and attention_fold.h; see vec.h for the rules.
#pragma once

#include "kernels/cpu/simd/vec.h"

namespace sluice::kernels::SLUICE_SIMD_NAMESPACE {

// Adds the products of kSumLanes values to the sums.
SLUICE_INLINE void AddDot(const float* a, const float* b, VecF (&sum)[kSumVectors]) {
#pragma GCC unroll 2
  for (int p = 0; p < kSumVectors; ++p) {
    sum[p] = Fma(Load(a + p * kLanes), Load(b + p * kLanes), sum[p]);
  }
}

// Returns sum_i a[i] b[i]; the order of the sum depends only on n.
SLUICE_INLINE float Dot(const float* a, const float* b, int64_t n) {
  VecF even[kSumVectors] = {}, odd[kSumVectors] = {};
  int64_t i = 0;
  for (; i + 2 * kSumLanes <= n; i += 2 * kSumLanes) {
    AddDot(a + i, b + i, even);
    AddDot(a + i + kSumLanes, b + i + kSumLanes, odd);
  }
  for (; i + kSumLanes <= n; i += kSumLanes) AddDot(a + i, b + i, even);
#pragma GCC unroll 2
  for (int p = 0; p < kSumVectors; ++p, i += kLanes) {
    if (i < n) odd[p] = Fma(LoadUpTo(a + i, n - i), LoadUpTo(b + i, n - i), odd[p]);
  }
#pragma GCC unroll 2
  for (int p = 0; p < kSumVectors; ++p) even[p] = even[p] + odd[p];
  return SumLanes(even);
}

}  // namespace sluice::kernels::SLUICE_SIMD_NAMESPACE
