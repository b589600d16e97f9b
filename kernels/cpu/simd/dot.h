// Inner products. Included by rows.h and attention_fold.h; see vec.h for the rules.
#pragma once

#include "kernels/cpu/simd/vec.h"

namespace sluice::kernels::SLUICE_SIMD_NAMESPACE {

// Returns sum_i a[i] b[i]; the order of the sum depends only on n.
SLUICE_INLINE float Dot(const float* a, const float* b, int64_t n) {
  VecF even = {}, odd = {};
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    even = Fma(Load(a + i), Load(b + i), even);
    odd = Fma(Load(a + i + kLanes), Load(b + i + kLanes), odd);
  }
  for (; i + kLanes <= n; i += kLanes) even = Fma(Load(a + i), Load(b + i), even);
  if (i < n) odd = Fma(LoadPartial(a + i, n - i, 0.0f), LoadPartial(b + i, n - i, 0.0f), odd);
  return SumLanes(even + odd);
}

}  // namespace sluice::kernels::SLUICE_SIMD_NAMESPACE
