// Vectors of one instruction set, and the few operations that are missing in GCC's vector
// extensions.
//
// Included once by each source of an instruction set (portable.cc, avx2.cc, avx512.cc, ...). The
// sources differ in SLUICE_SIMD_LANES, SLUICE_SIMD_NAMESPACE and compiler flags. Every definition
// is in that namespace. Every compilation for ARM64 has fused multiply-adds, so a source for it
// defines SLUICE_SIMD_FMA to use them. It may define SLUICE_SIMD_SUM_LANES to sum in the order of
// more lanes than a vector has. This header and the others in this folder must not include the C++
// library: the linker keeps one copy of an inline std:: function for the whole program, which could
// be the copy compiled with -mavx2.
#pragma once

#include <stdint.h>
#ifdef __aarch64__
#include <arm_neon.h>
#else
#include <immintrin.h>
#endif

#ifdef __FMA__
#define SLUICE_SIMD_FMA
#endif

#define SLUICE_INLINE static inline __attribute__((always_inline))
#define SLUICE_INLINE_MEMBER inline __attribute__((always_inline))

// The number of times to unroll. Unrolling instrumented loops would take the compiler minutes.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLUICE_SIMD_UNROLL(times) 1
#else
#define SLUICE_SIMD_UNROLL(times) (times)
#endif

namespace sluice::kernels::SLUICE_SIMD_NAMESPACE {

inline constexpr int kLanes = SLUICE_SIMD_LANES;
#ifndef SLUICE_SIMD_SUM_LANES
#define SLUICE_SIMD_SUM_LANES SLUICE_SIMD_LANES
#endif
// A sum over lanes has this many partial sums, in one vector or several. They decide its bits.
inline constexpr int kSumLanes = SLUICE_SIMD_SUM_LANES;
inline constexpr int kSumVectors = kSumLanes / kLanes;
inline constexpr int kCacheLine = 64;  // bytes
#if defined(__AVX512F__) && SLUICE_SIMD_LANES == 16
inline constexpr __mmask16 kEveryLane = 0xFFFF;  // GCC 12 warns about the forms without a mask
#endif

typedef float VecF __attribute__((vector_size(4 * SLUICE_SIMD_LANES)));
typedef int32_t VecI __attribute__((vector_size(4 * SLUICE_SIMD_LANES)));
typedef float UnalignedVecF
    __attribute__((vector_size(4 * SLUICE_SIMD_LANES), aligned(4), may_alias));
typedef int32_t UnalignedVecI
    __attribute__((vector_size(4 * SLUICE_SIMD_LANES), aligned(2), may_alias));

SLUICE_INLINE VecF Load(const float* p) { return *reinterpret_cast<const UnalignedVecF*>(p); }
SLUICE_INLINE VecI LoadInts(const void* p) { return *static_cast<const UnalignedVecI*>(p); }
SLUICE_INLINE void Store(float* p, VecF v) { *reinterpret_cast<UnalignedVecF*>(p) = v; }

// x - 0 keeps the sign of a zero; x + 0 does not.
SLUICE_INLINE VecF Broadcast(float x) { return x - VecF{}; }

#if defined(__AVX512F__) && SLUICE_SIMD_LANES == 16
// Returns the mask of the first n < kLanes lanes; n may be below 0.
SLUICE_INLINE __mmask16 FirstLanes(int64_t n) {
  return n > 0 ? static_cast<__mmask16>((1u << n) - 1) : __mmask16{0};
}
#endif

// Returns the first n < kLanes lanes from memory and `fill` in the others; n may be below 0.
SLUICE_INLINE VecF LoadPartial(const float* p, int64_t n, float fill) {
  VecF v = Broadcast(fill);
#if defined(__AVX512F__) && SLUICE_SIMD_LANES == 16
  return _mm512_mask_loadu_ps(v, FirstLanes(n), p);
#else
  for (int64_t i = 0; i < n; ++i) v[i] = p[i];
  return v;
#endif
}

// Stores the first n < kLanes lanes; n may be below 0.
SLUICE_INLINE void StorePartial(float* p, VecF v, int64_t n) {
#if defined(__AVX512F__) && SLUICE_SIMD_LANES == 16
  _mm512_mask_storeu_ps(p, FirstLanes(n), v);
#else
  for (int64_t i = 0; i < n; ++i) p[i] = v[i];
#endif
}

// Loads and stores the first n lanes, or all of them if there are no more; loads 0 in the others.
SLUICE_INLINE VecF LoadUpTo(const float* p, int64_t n) {
  return n >= kLanes ? Load(p) : LoadPartial(p, n, 0.0f);
}

SLUICE_INLINE void StoreUpTo(float* p, VecF v, int64_t n) {
  if (n >= kLanes) {
    Store(p, v);
  } else {
    StorePartial(p, v, n);
  }
}

// Returns a[0], b[0], a[1], b[1] and so on.
SLUICE_INLINE VecF InterleaveLow(VecF a, VecF b) {
#if SLUICE_SIMD_LANES == 16
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
#elif SLUICE_SIMD_LANES == 8
  return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
#else
  return __builtin_shufflevector(a, b, 0, 4, 1, 5);
#endif
}

// The same for the upper halves of the lanes.
SLUICE_INLINE VecF InterleaveHigh(VecF a, VecF b) {
#if SLUICE_SIMD_LANES == 16
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
                                 31);
#elif SLUICE_SIMD_LANES == 8
  return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
#else
  return __builtin_shufflevector(a, b, 2, 6, 3, 7);
#endif
}

// Transposes kLanes vectors: each round interleaves the first half of them with the second.
SLUICE_INLINE void Transpose(VecF (&v)[kLanes]) {
#pragma GCC unroll 4
  for (int done = 1; done < kLanes; done *= 2) {
    VecF next[kLanes];
#pragma GCC unroll 8
    for (int i = 0; i < kLanes / 2; ++i) {
      next[2 * i] = InterleaveLow(v[i], v[i + kLanes / 2]);
      next[2 * i + 1] = InterleaveHigh(v[i], v[i + kLanes / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) v[i] = next[i];
  }
}

#if defined(__FMA__) && !defined(__AVX512F__) && SLUICE_SIMD_LANES == 16
// The two halves of a vector. The tests compile the AVX-512 kernels for AVX2
// (kernels/cpu/CMakeLists.txt). Without the halves GCC would compute some operations lane by lane.
struct TwoHalves {
  __m256 low, high;
};
SLUICE_INLINE TwoHalves HalvesOf(VecF v) { return __builtin_bit_cast(TwoHalves, v); }
#endif

SLUICE_INLINE float FmaScalar(float a, float b, float c) {
#ifdef SLUICE_SIMD_FMA
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

// Returns a * b + c, rounded once if the instruction set supports it.
SLUICE_INLINE VecF Fma(VecF a, VecF b, VecF c) {
#if defined(__AVX512F__) && SLUICE_SIMD_LANES == 16
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__FMA__) && SLUICE_SIMD_LANES == 8
  return _mm256_fmadd_ps(a, b, c);
#elif defined(__FMA__) && SLUICE_SIMD_LANES == 16
  const TwoHalves x = HalvesOf(a), y = HalvesOf(b), z = HalvesOf(c);
  const TwoHalves sums = {_mm256_fmadd_ps(x.low, y.low, z.low),
                          _mm256_fmadd_ps(x.high, y.high, z.high)};
  return __builtin_bit_cast(VecF, sums);
#elif defined(__aarch64__) && defined(SLUICE_SIMD_FMA)
  return vfmaq_f32(c, a, b);
#else
  VecF r;
  for (int i = 0; i < kLanes; ++i) r[i] = FmaScalar(a[i], b[i], c[i]);
  return r;
#endif
}

// Returns a mask in which bit i is set unless x[i] <= bound[i]; it is also set if either is NaN.
SLUICE_INLINE uint32_t NotLessEqual(VecF x, VecF bound) {
#if defined(__AVX512F__) && SLUICE_SIMD_LANES == 16
  return _mm512_cmp_ps_mask(x, bound, _CMP_NLE_UQ);
#elif defined(__AVX__) && SLUICE_SIMD_LANES == 8
  return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(x, bound, _CMP_NLE_UQ)));
#elif defined(__FMA__) && SLUICE_SIMD_LANES == 16
  const TwoHalves a = HalvesOf(x), b = HalvesOf(bound);
  const int low = _mm256_movemask_ps(_mm256_cmp_ps(a.low, b.low, _CMP_NLE_UQ));
  const int high = _mm256_movemask_ps(_mm256_cmp_ps(a.high, b.high, _CMP_NLE_UQ));
  return static_cast<uint32_t>(low | high << 8);
#else
  uint32_t bits = 0;
  for (int i = 0; i < kLanes; ++i) bits |= static_cast<uint32_t>(!(x[i] <= bound[i])) << i;
  return bits;
#endif
}

// Returns the first n lanes of v and `fill` in the others; n may be above kLanes or below 0.
SLUICE_INLINE VecF KeepFirst(VecF v, int64_t n, float fill) {
  VecI place;
  for (int i = 0; i < kLanes; ++i) place[i] = i;
  return place < static_cast<int32_t>(n) ? v : Broadcast(fill);
}

// Folds the upper half of the lanes of a VecF or VecI onto the lower half until one is left.
template <typename Vector, typename Fold>
SLUICE_INLINE auto FoldLanes(Vector v, Fold fold) {
#if defined(__AVX2__) && SLUICE_SIMD_LANES == 16
  const auto eight = fold(__builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7),
                          __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15));
#elif defined(__AVX__) && SLUICE_SIMD_LANES == 8
  const auto eight = v;
#endif
#if defined(__AVX2__) && SLUICE_SIMD_LANES == 16 || defined(__AVX__) && SLUICE_SIMD_LANES == 8
  const auto four = fold(__builtin_shufflevector(eight, eight, 0, 1, 2, 3),
                         __builtin_shufflevector(eight, eight, 4, 5, 6, 7));
  const auto two = fold(four, __builtin_shufflevector(four, four, 2, 3, 2, 3));
  return fold(two[0], two[1]);
#else
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) v[i] = fold(v[i], v[i + width]);
  }
  return v[0];
#endif
}

// Returns the sum of the lanes, in an order that depends only on kSumLanes: two vectors are the
// halves of a wider one.
SLUICE_INLINE float SumLanes(const VecF (&v)[kSumVectors]) {
  static_assert(kSumVectors <= 2);
  return FoldLanes(kSumVectors == 1 ? v[0] : v[0] + v[kSumVectors - 1],
                   [](auto a, auto b) { return a + b; });
}

SLUICE_INLINE VecF Abs(VecF x) {
  return reinterpret_cast<VecF>(reinterpret_cast<VecI>(x) & 0x7FFFFFFF);
}

// Returns the larger of each pair, and `a` where b is NaN.
SLUICE_INLINE VecF Max(VecF a, VecF b) { return b > a ? b : a; }

// Returns the largest lane. Requires that no lane is NaN.
template <typename Vector>
SLUICE_INLINE auto MaxLanes(Vector v) {
  return FoldLanes(v, [](auto a, auto b) { return b > a ? b : a; });
}

// Replaces each x by e^x within 2 ulp, denormal results included; exp(-inf) = 0, NaN stays NaN.
//
// x = n ln2 + r with |r| <= ln2 / 2; e^r = 1 + r + r^2 P(r), P of degree 5 interpolated at the
// Chebyshev nodes. ln2 is split so that n * kLn2High is exact. 2^n is applied in two factors, so
// that neither overflows before the result does; AVX-512 has an instruction for that. Lanes of
// -inf, such as masked scores, must not become 0 by underflow, which takes a hundred cycles or
// more.
//
// All vectors take each step together, so that no vector waits for its own previous step.
template <int N>
SLUICE_INLINE void ExpAll(VecF (&x)[N]) {
  constexpr float kHighest = 89.0f, kLowest = -104.0f;  // beyond these the result is inf or 0
  constexpr float kRound = 12582912.0f;                 // 1.5 * 2^23: adding it rounds to integers
  constexpr float kLog2E = 1.44269504f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  constexpr float kP[] = {0.5f,           0.166666672f,   0.0416664667f,
                          0.00833331048f, 0.00139336498f, 0.000198909911f};
#if defined(__AVX512F__) && SLUICE_SIMD_LANES == 16
  __mmask16 positive[N];
#pragma GCC unroll 4
  for (int i = 0; i < N; ++i) {
    positive[i] = _mm512_cmp_ps_mask(x[i], Broadcast(kLowest), _CMP_NLT_UQ);
    x[i] = _mm512_maskz_min_ps(kEveryLane, Broadcast(kHighest),
                               x[i]);  // returns its second operand, the NaN
  }
#else
  VecI zero[N];
#pragma GCC unroll 4
  for (int i = 0; i < N; ++i) {
    zero[i] = x[i] < kLowest;
    x[i] = x[i] > kHighest ? Broadcast(kHighest) : x[i];
    x[i] = zero[i] ? VecF{} : x[i];
  }
#endif
  VecF shifted[N], r[N], p[N];
#pragma GCC unroll 4
  for (int i = 0; i < N; ++i) shifted[i] = Fma(x[i], Broadcast(kLog2E), Broadcast(kRound));
#pragma GCC unroll 4
  for (int i = 0; i < N; ++i) r[i] = Fma(shifted[i] - kRound, Broadcast(-kLn2High), x[i]);
#pragma GCC unroll 4
  for (int i = 0; i < N; ++i) r[i] = Fma(shifted[i] - kRound, Broadcast(-kLn2Low), r[i]);
#pragma GCC unroll 4
  for (int i = 0; i < N; ++i) p[i] = Fma(Broadcast(kP[5]), r[i], Broadcast(kP[4]));
#pragma GCC unroll 4
  for (int term = 3; term >= 0; --term) {
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) p[i] = Fma(p[i], r[i], Broadcast(kP[term]));
  }
#pragma GCC unroll 4
  for (int i = 0; i < N; ++i) {
    const VecF e = Fma(p[i], r[i] * r[i], r[i]) + 1.0f;
#if defined(__AVX512F__) && SLUICE_SIMD_LANES == 16
    x[i] = _mm512_maskz_scalef_ps(positive[i], e, shifted[i] - kRound);
#else
    constexpr int32_t kRoundBits = 0x4B400000;
    const VecI exponent = reinterpret_cast<VecI>(shifted[i]) - kRoundBits;
    const VecI half = exponent >> 1;
    const VecF first = reinterpret_cast<VecF>((half + 127) << 23);
    const VecF second = reinterpret_cast<VecF>((exponent - half + 127) << 23);
    x[i] = zero[i] ? VecF{} : e * first * second;
#endif
  }
}

SLUICE_INLINE VecF Exp(VecF x) {
  VecF one[] = {x};
  ExpAll(one);
  return one[0];
}

}  // namespace sluice::kernels::SLUICE_SIMD_NAMESPACE
