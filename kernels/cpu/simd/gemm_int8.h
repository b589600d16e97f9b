// The parts of the products in int8 that units share. See vec.h for the rules and int8.h for the
// arithmetic.
#pragma once

#include "kernels/cpu/simd/gemm_tiles.h"
#include "kernels/cpu/simd/int8.h"

namespace sluice::kernels::SLUICE_SIMD_NAMESPACE {

// Returns values of a row from the i-th on, with zeros behind the k-th, times their factors if
// there are any.
template <bool kFactors>
SLUICE_INLINE VecF ValuesAt(const float* x, const float* factors, int64_t i, int64_t k) {
  const bool all = k - i >= kLanes;
  const VecF v = all ? Load(x + i) : LoadPartial(x + i, k - i, 0.0f);
  if constexpr (!kFactors) return v;
  return v * (all ? Load(factors + i) : LoadPartial(factors + i, k - i, 0.0f));
}

// Returns the largest bits of a magnitude, which are those of the largest magnitude; NaN is above
// all numbers.
template <bool kFactors>
static int32_t LargestBits(const float* x, const float* factors, int64_t k) {
  VecI largest = {};
  for (int64_t i = 0; i < k; i += kLanes) {
    const VecF v = ValuesAt<kFactors>(x, factors, i, k);
    const VecI bits = reinterpret_cast<VecI>(v) & 0x7FFFFFFF;
    largest = bits > largest ? bits : largest;
  }
  return MaxLanes(largest);
}

// Quantises a row into values of type T, each with kOffset added.
template <typename T, int32_t kOffset, bool kFactors>
static void QuantizeRowTimes(const float* x, const float* factors, int64_t k, void* out,
                             float* scale) {
  typedef T Values __attribute__((vector_size(sizeof(T) * kLanes), aligned(1), may_alias));
  constexpr int32_t kInfinity = 0x7F800000;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to integers
  const int32_t bits = LargestBits<kFactors>(x, factors, k);
  float largest;
  __builtin_memcpy(&largest, &bits, sizeof(largest));
  const bool counts = bits < kInfinity && largest >= simd::kInt8Least;
  const VecF inverse = Broadcast(counts ? simd::kInt8Most / largest : 0.0f);
  *scale = bits >= kInfinity ? __builtin_nanf("") : counts ? largest / simd::kInt8Most : 0.0f;
  T* const to = static_cast<T*>(out);
  const int64_t padded = (k + simd::kInt8Depth - 1) / simd::kInt8Depth * simd::kInt8Depth;
  for (int64_t i = 0; i < padded; i += kLanes) {
    const VecF v = ValuesAt<kFactors>(x, factors, i, k);
    const VecF rounded = (counts ? v : VecF{}) * inverse + kRound;
    const VecI value = reinterpret_cast<VecI>(rounded) - (0x4B400000 - kOffset);
    *reinterpret_cast<Values*>(to + i) = __builtin_convertvector(value, Values);
  }
}

template <typename T, int32_t kOffset>
static void QuantizeRow(const float* x, const float* factors, int64_t k, void* out, float* scale) {
  if (factors == nullptr) return QuantizeRowTimes<T, kOffset, false>(x, factors, k, out, scale);
  QuantizeRowTimes<T, kOffset, true>(x, factors, k, out, scale);
}

// Quantises a row into values of type T, and writes -kEach times the sum of the values before each
// kInt4Summed of them, and of all.
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

// What the units share. An element of a panel is four values of a column. Sums begin at what is
// taken away for the offset of x.
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
      sum[c] = kOffset != 0 ? -LoadInts(block.corrections + col + c * kLanes) : VecI{};
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
