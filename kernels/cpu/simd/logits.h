// Passes over a row of logits or scores. Included by table.inc; see vec.h for the rules.
#pragma once

#include "kernels/cpu/simd/activations.h"
#include "kernels/cpu/simd/table.h"
#include "kernels/cpu/simd/vec.h"

namespace sluice::kernels::SLUICE_SIMD_NAMESPACE {

static void SoftCap(float cap, int64_t n, float* x) {
  for (int64_t i = 0; i < n; i += kLanes) {
    const int64_t left = n - i;
    if (left >= kLanes) {
      Store(x + i, cap * Tanh(Load(x + i) / cap));
    } else {
      StorePartial(x + i, cap * Tanh(LoadPartial(x + i, left, 0.0f) / cap), left);
    }
  }
}

static float MaxOf(const float* x, int64_t n) {
  VecF largest = Broadcast(-__builtin_inff());
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) largest = Max(largest, Load(x + i));
  if (i < n) largest = Max(largest, LoadPartial(x + i, n - i, -__builtin_inff()));
  return MaxLanes(largest);
}

// Implements ExpSum. Without kFiltered it requires divisor 1 and floor 0 and gives the same result
// bit for bit.
template <bool kFiltered>
static float ExpSumOf(const float* x, int64_t n, float shift, float divisor, float floor,
                      float* w) {
  VecF sum[kSumVectors] = {};
  const VecF least = Broadcast(floor);
  for (int64_t begin = 0; begin < n; begin += kSumLanes) {
#pragma GCC unroll 2
    for (int p = 0; p < kSumVectors; ++p) {
      const int64_t i = begin + p * kLanes, left = n - i;
      const VecF in = left >= kLanes ? Load(x + i) : LoadPartial(x + i, left, -__builtin_inff());
      VecF e = Exp(kFiltered ? (in - shift) / divisor : in - shift);
      if (kFiltered) e = e < least ? VecF{} : e;
      sum[p] += e;
      if (w == nullptr) continue;
      if (left >= kLanes) {
        Store(w + i, e);
      } else {
        StorePartial(w + i, e, left);
      }
    }
  }
  return SumLanes(sum);
}

static float ExpSum(const float* x, int64_t n, float shift, float divisor, float floor, float* w) {
  const bool filtered = divisor != 1.0f || floor != 0.0f;
  const auto exp_sum = filtered ? ExpSumOf<true> : ExpSumOf<false>;
  return exp_sum(x, n, shift, divisor, floor, w);
}

static int64_t Scan(const float* x, int64_t begin, int64_t n, float bound, int32_t* indices,
                    int64_t room, int64_t* found) {
  const VecF limit = Broadcast(bound);
  int64_t i = begin, count = 0;
  for (; i < n && count + kLanes <= room; i += kLanes) {
    const int64_t left = n - i;
    uint32_t hits = left >= kLanes
                        ? NotLessEqual(Load(x + i), limit)
                        : NotLessEqual(LoadPartial(x + i, left, 0.0f), limit) & ((1u << left) - 1);
    for (; hits != 0; hits &= hits - 1) {
      indices[count++] = static_cast<int32_t>(i) + __builtin_ctz(hits);
    }
  }
  *found = count;
  return i < n ? i : n;
}

}  // namespace sluice::kernels::SLUICE_SIMD_NAMESPACE
