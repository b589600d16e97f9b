// The parts of the products in int8 that units share. See vec.h for the rules and int8.h for the
// arithmetic.
#pragma once

#include "kernels/cpu/simd/gemm_tiles.h"
#include "kernels/cpu/simd/int8.h"

namespace sluice::kernels::SLUICE_SIMD_NAMESPACE {

// Returns kLanes values of a row from the i-th on, times their factors if there are any. Unless
// kAll, values after the k-th are zeros.
template <bool kFactors, bool kAll>
SLUICE_INLINE VecF ValuesAt(const float* x, const float* factors, int64_t i, int64_t k) {
  const VecF v = kAll ? Load(x + i) : LoadUpTo(x + i, k - i);
  if constexpr (!kFactors) return v;
  return v * (kAll ? Load(factors + i) : LoadUpTo(factors + i, k - i));
}

// The number of vectors of a row that are quantised together.
inline constexpr int kQuantizedAtOnce = 4;
inline constexpr int64_t kQuantizedStep = kQuantizedAtOnce * kLanes;
static_assert(simd::kInt8Depth % kQuantizedStep == 0);

// Updates the largest bits of magnitudes with kQuantizedStep values.
template <bool kFactors, bool kAll>
SLUICE_INLINE void UpdateLargest(const float* x, const float* factors, int64_t i, int64_t k,
                                 VecI (&largest)[kQuantizedAtOnce]) {
#pragma GCC unroll 4
  for (int v = 0; v < kQuantizedAtOnce; ++v) {
    const VecF value = ValuesAt<kFactors, kAll>(x, factors, i + v * kLanes, k);
    const VecI bits = reinterpret_cast<VecI>(value) & 0x7FFFFFFF;
    largest[v] = bits > largest[v] ? bits : largest[v];
  }
}

// Returns the bits of the largest magnitude, which are also the largest bits. NaN is above all
// numbers.
template <bool kFactors>
static int32_t LargestBits(const float* x, const float* factors, int64_t k) {
  VecI largest[kQuantizedAtOnce] = {};
  int64_t i = 0;
  for (; i + kQuantizedStep <= k; i += kQuantizedStep) {
    UpdateLargest<kFactors, true>(x, factors, i, k, largest);
  }
  if (i < k) UpdateLargest<kFactors, false>(x, factors, i, k, largest);
  VecI most = largest[0];
  for (const VecI& each : largest) most = each > most ? each : most;
  return MaxLanes(most);
}

// Stores two vectors of values that fit T, one after another.
template <typename T>
SLUICE_INLINE void StoreTwo(VecI first, VecI second, T* out) {
#if SLUICE_SIMD_LANES == 8
  const __m256i by_halves =  // the middle two quarters are swapped
      _mm256_packs_epi32(reinterpret_cast<__m256i>(first), reinterpret_cast<__m256i>(second));
  const __m256i words = _mm256_permute4x64_epi64(by_halves, 0xD8);
  if constexpr (sizeof(T) == 2) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), words);
  } else {
    const __m128i low = _mm256_castsi256_si128(words), high = _mm256_extracti128_si256(words, 1);
    const bool is_signed = static_cast<T>(-1) < 0;
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out),
                     is_signed ? _mm_packs_epi16(low, high) : _mm_packus_epi16(low, high));
  }
#else
  typedef T Values __attribute__((vector_size(sizeof(T) * kLanes), aligned(1), may_alias));
  *reinterpret_cast<Values*>(out) = __builtin_convertvector(first, Values);
  *reinterpret_cast<Values*>(out + kLanes) = __builtin_convertvector(second, Values);
#endif
}

// Quantises kQuantizedStep values.
template <typename T, int32_t kOffset, bool kFactors, bool kAll>
SLUICE_INLINE void QuantizeStep(const float* x, const float* factors, int64_t i, int64_t k,
                                VecF inverse, T* out) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to integers
  VecI value[kQuantizedAtOnce];
#pragma GCC unroll 4
  for (int v = 0; v < kQuantizedAtOnce; ++v) {
    const VecF scaled = ValuesAt<kFactors, kAll>(x, factors, i + v * kLanes, k) * inverse;
    value[v] = reinterpret_cast<VecI>(scaled + kRound) - (0x4B400000 - kOffset);
  }
#pragma GCC unroll 2
  for (int v = 0; v < kQuantizedAtOnce; v += 2) {
    StoreTwo(value[v], value[v + 1], out + i + v * kLanes);
  }
}

// Quantises a row into values of type T, each with kOffset added.
template <typename T, int32_t kOffset, bool kFactors>
static void QuantizeRowTimes(const float* x, const float* factors, int64_t k, void* out,
                             float* scale) {
  constexpr int32_t kInfinity = 0x7F800000;
  const int32_t bits = LargestBits<kFactors>(x, factors, k);
  float largest;
  __builtin_memcpy(&largest, &bits, sizeof(largest));
  const bool counts = bits < kInfinity && largest >= simd::kInt8Least;
  *scale = bits >= kInfinity ? __builtin_nanf("") : counts ? largest / simd::kInt8Most : 0.0f;
  T* const to = static_cast<T*>(out);
  const int64_t padded = (k + simd::kInt8Depth - 1) / simd::kInt8Depth * simd::kInt8Depth;
  int64_t i = 0;
  if (counts) {
    const VecF inverse = Broadcast(simd::kInt8Most / largest);
    for (; i + kQuantizedStep <= k; i += kQuantizedStep) {
      QuantizeStep<T, kOffset, kFactors, true>(x, factors, i, k, inverse, to);
    }
    if (i < k) {
      QuantizeStep<T, kOffset, kFactors, false>(x, factors, i, k, inverse, to);
      i += kQuantizedStep;
    }
  }
  for (; i < padded; ++i) to[i] = static_cast<T>(kOffset);
}

template <typename T, int32_t kOffset>
static void QuantizeRow(const float* x, const float* factors, int64_t k, void* out, float* scale) {
  if (factors == nullptr) return QuantizeRowTimes<T, kOffset, false>(x, factors, k, out, scale);
  QuantizeRowTimes<T, kOffset, true>(x, factors, k, out, scale);
}

// Quantises a row into values of type T. Also writes -kEach times the sum of the values before each
// kInt4Summed of them, and over all.
template <typename T, int32_t kEach>
static void QuantizeRowInt4(const float* x, int64_t k, void* out, float* scale, int32_t* begins) {
  QuantizeRow<T, 0>(x, nullptr, k, out, scale);
  const T* const values = static_cast<const T*>(out);
  const int64_t padded = (k + simd::kInt8Depth - 1) / simd::kInt8Depth * simd::kInt8Depth;
  begins[0] = 0;
  for (int64_t i = 0; i < padded / simd::kInt4Summed; ++i) {
    int32_t sum = 0;
    for (int64_t j = 0; j < simd::kInt4Summed; ++j) sum += values[i * simd::kInt4Summed + j];
    begins[i + 1] = begins[i] - kEach * sum;
  }
}

// Sums of int8 before the correction may wrap around, which signed integers may not.
typedef uint32_t VecU __attribute__((vector_size(sizeof(VecI))));

// The members that all units share. An element of a panel is four values of a column. Sums begin at
// minus the correction for the offset of x.
template <int32_t kOffset>
struct Int8Sums {
  typedef simd::Int8Block Block;
  typedef int32_t Element;
  typedef VecI Column;
  typedef VecI Sum;
  static constexpr bool kOnePanel = true;

  SLUICE_INLINE void Begin(const Block& block, int64_t col, VecI* sum) {
#pragma GCC unroll 2
    for (int c = 0; c < kPanelVectors; ++c) {
      sum[c] = VecI{};
      if constexpr (kOffset == 0) continue;
      const VecI correction = LoadInts(block.corrections + col + c * kLanes);
      sum[c] = reinterpret_cast<VecI>(-reinterpret_cast<VecU>(correction));
    }
  }
  // Scales kTotal vectors of finished sums.
  template <int kTotal>
  SLUICE_INLINE void Scale(const Block& block, int64_t row, int64_t col, const VecI* sum, VecF* y) {
    const VecF row_scale = Broadcast(block.row_scales[row]);
#pragma GCC unroll 2
    for (int c = 0; c < kTotal; ++c) {
      y[c] =
          __builtin_convertvector(sum[c], VecF) * row_scale * Load(block.scales + col + c * kLanes);
    }
  }
};

}  // namespace sluice::kernels::SLUICE_SIMD_NAMESPACE
