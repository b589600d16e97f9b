// Activations and the soft cap, element by element. Included by table.inc; see vec.h for the rules.
#pragma once

#include "kernels/cpu/simd/table.h"
#include "kernels/cpu/simd/vec.h"

namespace sluice::kernels::SLUICE_SIMD_NAMESPACE {

// Each activation replaces the vectors of x. All vectors take each step together, as in ExpAll.
struct Silu {
  template <int N>
  SLUICE_INLINE_MEMBER static void Apply(VecF (&x)[N]) {
    VecF e[N];
    for (int i = 0; i < N; ++i) e[i] = -x[i];
    ExpAll(e);
    for (int i = 0; i < N; ++i) x[i] = x[i] / (1.0f + e[i]);
  }
};

// Bits of floats. Additions wrap.
typedef uint32_t Bits __attribute__((vector_size(4 * SLUICE_SIMD_LANES)));

// Uses x Phi(x) = max(x, 0) - |x| Phi(-|x|) for the normal distribution Phi. The tail Phi(-|x|) is
// the exponential 2^(-1 + u P(u)), u = |x|, up to 6; above 6 the product is below 1e-8 and counts
// as 0. P has degree 6, and 2^r degree 5 for |r| <= 1/2; both were fitted in double. The result is
// within 1.1e-7 of max(|x|, 1).
struct Gelu {
  template <int N>
  SLUICE_INLINE_MEMBER static void Apply(VecF (&x)[N]) {
    constexpr float kFar = 6.0f;
    constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to integers
    constexpr float kTail[] = {-1.0f,        -1.1511194f,     -0.4590948f,     -0.052828886f,
                               0.007539512f, -0.00050342164f, -3.2120854e-05f, 6.255845e-06f};
    constexpr float kPower[] = {1.0000001f,  0.69314694f,  0.2402212f,
                                0.05550713f, 0.009675541f, 0.0013276471f};
    VecF u[N], p[N], n[N], y[N];
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) {
      u[i] = Abs(x[i]);
      p[i] = Broadcast(kTail[7]);
    }
#pragma GCC unroll 8
    for (int term = 6; term >= 0; --term) {
#pragma GCC unroll 4
      for (int i = 0; i < N; ++i) p[i] = Fma(p[i], u[i], Broadcast(kTail[term]));
    }
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) {
      n[i] = p[i] + kRound;
      p[i] = p[i] - (n[i] - kRound);
      y[i] = Broadcast(kPower[5]);
    }
#pragma GCC unroll 8
    for (int term = 4; term >= 0; --term) {
#pragma GCC unroll 4
      for (int i = 0; i < N; ++i) y[i] = Fma(y[i], p[i], Broadcast(kPower[term]));
    }
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) {
      const Bits power = reinterpret_cast<Bits>(y[i]) + (reinterpret_cast<Bits>(n[i]) << 23);
      y[i] = u[i] > kFar ? VecF{} : reinterpret_cast<VecF>(power);
      x[i] = (x[i] > VecF{} ? x[i] : VecF{}) - u[i] * y[i];
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

// Returns tanh(x) within 4 ulp. Below 1/4, where 1 - e^(-2|x|) would cancel, uses the Taylor
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
