// Activations and the soft cap, element by element. Included by table.inc; see vec.h for the rules.
#pragma once

#include "kernels/cpu/simd/table.h"
#include "kernels/cpu/simd/vec.h"

namespace sluice::kernels::SLUICE_SIMD_NAMESPACE {

SLUICE_INLINE VecF Silu(VecF x) { return x / (1.0f + Exp(-x)); }

// Uses erfc(z) = e^(-z^2) t P(t) for z >= 0, t = 1 / (1 + 0.4 z), in the form of Abramowitz and
// Stegun 7.1.28, with P of degree 9 fitted in double to 1e-8 relative. x erfc(-x / sqrt(2)) / 2 is
// then within 2.4e-7 for |x| <= 12.
SLUICE_INLINE VecF Gelu(VecF x) {
  constexpr float kP[] = {0.22570866f,  0.2249155f,  0.21524423f,  0.12805954f, 0.27704966f,
                          -0.29419631f, 0.55989307f, -0.50861561f, 0.20237118f, -0.030429896f};
  const VecF z = (x < VecF{} ? -x : x) * 0.70710678f;
  const VecF t = 1.0f / (1.0f + 0.4f * z);
  VecF p = Broadcast(kP[9]);
  for (int i = 8; i >= 0; --i) p = Fma(p, t, Broadcast(kP[i]));
  const VecF tail = x * (0.5f * p * t * Exp(-(z * z)));
  return x > VecF{} ? x - tail : tail;
}

// Uses (1 + tanh(u)) / 2 = 1 / (1 + e^(-2u)), u = sqrt(2 / pi) (x + 0.044715 x^3).
SLUICE_INLINE VecF GeluTanh(VecF x) {
  constexpr float kTwice = 1.59576912f, kCubic = 0.0713548162f;  // 2 sqrt(2/pi), 0.044715 times it
  return x / (1.0f + Exp(-(x * (kTwice + kCubic * (x * x)))));
}

SLUICE_INLINE VecF Relu(VecF x) { return Max(x, VecF{}); }

SLUICE_INLINE VecF SquaredRelu(VecF x) { return Relu(x) * Relu(x); }

// Returns tanh(x) within 4 ulp. Below 1/4, where 1 - e^(-2|x|) would cancel, it uses the Taylor
// series.
SLUICE_INLINE VecF Tanh(VecF x) {
  constexpr float kSeries[] = {-0.333333343f, 0.13333334f, -0.0539682545f, 0.0218694881f};
  const VecF magnitude = x < VecF{} ? -x : x, square = x * x;
  VecF series = Broadcast(kSeries[3]);
  for (int i = 2; i >= 0; --i) series = Fma(series, square, Broadcast(kSeries[i]));
  const VecF small = Fma(series, x * square, x);
  const VecF e = Exp(-2.0f * magnitude), large = (1.0f - e) / (1.0f + e);
  return magnitude < Broadcast(0.25f) ? small : (x < VecF{} ? -large : large);
}

// Computes out[i] = kFunction(in[i]) (* up[i]).
template <VecF (*kFunction)(VecF)>
static void Activate(const float* in, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i += kLanes) {
    const int64_t left = n - i;
    const bool whole = left >= kLanes;
    VecF y = kFunction(whole ? Load(in + i) : LoadPartial(in + i, left, 0.0f));
    if (up != nullptr) y = y * (whole ? Load(up + i) : LoadPartial(up + i, left, 0.0f));
    if (whole) {
      Store(out + i, y);
    } else {
      StorePartial(out + i, y, left);
    }
  }
}

}  // namespace sluice::kernels::SLUICE_SIMD_NAMESPACE
