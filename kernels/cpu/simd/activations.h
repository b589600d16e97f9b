// Activations and the soft cap, element by element. Included by table.inc; see vec.h for the rules.
#pragma once

#include "kernels/cpu/simd/table.h"
#include "kernels/cpu/simd/vec.h"

namespace sluice::kernels::SLUICE_SIMD_NAMESPACE {

// Each activation replaces the vectors of x, which take each step together, as those of ExpAll.
struct Silu {
  template <int N>
  SLUICE_INLINE_MEMBER static void Apply(VecF (&x)[N]) {
    VecF e[N];
    for (int i = 0; i < N; ++i) e[i] = -x[i];
    ExpAll(e);
    for (int i = 0; i < N; ++i) x[i] = x[i] / (1.0f + e[i]);
  }
};

// Uses erfc(z) = e^(-z^2) t P(t) for z >= 0, t = 1 / (1 + 0.4 z), in the form of Abramowitz and
// Stegun 7.1.28, with P of degree 9 fitted in double to 1e-8 relative. x erfc(-x / sqrt(2)) / 2 is
// then within 2.4e-7 for |x| <= 12.
struct Gelu {
  template <int N>
  SLUICE_INLINE_MEMBER static void Apply(VecF (&x)[N]) {
    constexpr float kP[] = {0.22570866f,  0.2249155f,  0.21524423f,  0.12805954f, 0.27704966f,
                            -0.29419631f, 0.55989307f, -0.50861561f, 0.20237118f, -0.030429896f};
    VecF t[N], p[N], e[N];
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) {
      const VecF z = Abs(x[i]) * 0.70710678f;
      t[i] = 1.0f / (1.0f + 0.4f * z);
      e[i] = -(z * z);
    }
    ExpAll(e);
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) p[i] = Fma(Broadcast(kP[9]), t[i], Broadcast(kP[8]));
#pragma GCC unroll 8
    for (int term = 7; term >= 0; --term) {
#pragma GCC unroll 4
      for (int i = 0; i < N; ++i) p[i] = Fma(p[i], t[i], Broadcast(kP[term]));
    }
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) {
      const VecF tail = x[i] * (0.5f * p[i] * t[i] * e[i]);
      x[i] = x[i] > VecF{} ? x[i] - tail : tail;
    }
  }
};

// Uses (1 + tanh(u)) / 2 = 1 / (1 + e^(-2u)), u = sqrt(2 / pi) (x + 0.044715 x^3).
struct GeluTanh {
  template <int N>
  SLUICE_INLINE_MEMBER static void Apply(VecF (&x)[N]) {
    constexpr float kTwice = 1.59576912f;    // 2 sqrt(2 / pi)
    constexpr float kCubic = 0.0713548162f;  // 0.044715 times it
    VecF e[N];
    for (int i = 0; i < N; ++i) e[i] = -(x[i] * (kTwice + kCubic * (x[i] * x[i])));
    ExpAll(e);
    for (int i = 0; i < N; ++i) x[i] = x[i] / (1.0f + e[i]);
  }
};

struct Relu {
  template <int N>
  SLUICE_INLINE_MEMBER static void Apply(VecF (&x)[N]) {
    for (int i = 0; i < N; ++i) x[i] = Max(x[i], VecF{});
  }
};

struct SquaredRelu {
  template <int N>
  SLUICE_INLINE_MEMBER static void Apply(VecF (&x)[N]) {
    Relu::Apply(x);
    for (int i = 0; i < N; ++i) x[i] = x[i] * x[i];
  }
};

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

// The number of vectors that hide the latency of an activation and fit the registers.
inline constexpr int kActivatedAtOnce = kLanes == 16 ? 4 : 2;

// Computes out[i] = f(in[i]) (* up[i]).
template <typename Function>
static void Activate(const float* in, const float* up, int64_t n, float* out) {
  constexpr int64_t kStep = kActivatedAtOnce * kLanes;
  int64_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    VecF y[kActivatedAtOnce];
#pragma GCC unroll 4
    for (int v = 0; v < kActivatedAtOnce; ++v) y[v] = Load(in + i + v * kLanes);
    Function::Apply(y);
#pragma GCC unroll 4
    for (int v = 0; v < kActivatedAtOnce; ++v) {
      Store(out + i + v * kLanes, up != nullptr ? y[v] * Load(up + i + v * kLanes) : y[v]);
    }
  }
  for (; i < n; i += kLanes) {
    VecF y[] = {LoadUpTo(in + i, n - i)};
    Function::Apply(y);
    StoreUpTo(out + i, up != nullptr ? y[0] * LoadUpTo(up + i, n - i) : y[0], n - i);
  }
}

}  // namespace sluice::kernels::SLUICE_SIMD_NAMESPACE
