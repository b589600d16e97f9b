// Row-wise and elementwise kernels. Included by table.inc; see vec.h for the rules.
#pragma once

#include "kernels/cpu/simd/vec.h"

namespace sluice::kernels::SLUICE_SIMD_NAMESPACE {

// sum_i a[i] b[i]; the order of the sum depends on n alone.
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

static void RmsNorm(const float* x, const float* weight, float eps, int64_t dim, float* out) {
  const float mean_square = Dot(x, x, dim) / static_cast<float>(dim);
  const VecF inverse = Broadcast(1.0f / __builtin_sqrtf(mean_square + eps));
  int64_t i = 0;
  for (; i + kLanes <= dim; i += kLanes) {
    const VecF scaled = Load(x + i) * inverse;
    Store(out + i, weight != nullptr ? scaled * Load(weight + i) : scaled);
  }
  for (; i < dim; ++i) {
    const float scaled = x[i] * inverse[0];
    out[i] = weight != nullptr ? scaled * weight[i] : scaled;
  }
}

SLUICE_INLINE VecF SiluTimes(VecF gate, VecF up) { return gate / (1.0f + Exp(-gate)) * up; }

static void SwiGlu(const float* gate, const float* up, int64_t n, float* out) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) Store(out + i, SiluTimes(Load(gate + i), Load(up + i)));
  if (i < n) {
    const VecF g = LoadPartial(gate + i, n - i, 0.0f), u = LoadPartial(up + i, n - i, 0.0f);
    StorePartial(out + i, SiluTimes(g, u), n - i);
  }
}

static void Rotate(const float* x, const float* cos, const float* sin, int64_t half, float* out) {
  int64_t i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    const VecF a = Load(x + i), b = Load(x + half + i), c = Load(cos + i), s = Load(sin + i);
    Store(out + i, a * c - b * s);
    Store(out + half + i, b * c + a * s);
  }
  for (; i < half; ++i) {
    const float a = x[i], b = x[half + i];
    out[i] = a * cos[i] - b * sin[i];
    out[half + i] = b * cos[i] + a * sin[i];
  }
}

}  // namespace sluice::kernels::SLUICE_SIMD_NAMESPACE
