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
  int32_t most = 0;
  for (int i = 0; i < kLanes; ++i) most = largest[i] > most ? largest[i] : most;
  return most;
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

// Sums each kInt4Summed values of a quantised row, from whose values it subtracts the offset.
template <typename T, int32_t kOffset>
static void SumRow(const void* row, int64_t k, int32_t* sums) {
  const T* const values = static_cast<const T*>(row);
  const int64_t padded = (k + simd::kInt8Depth - 1) / simd::kInt8Depth * simd::kInt8Depth;
  for (int64_t i = 0; i < padded / simd::kInt4Summed; ++i) {
    int32_t sum = 0;
    for (int64_t j = 0; j < simd::kInt4Summed; ++j) sum += values[i * simd::kInt4Summed + j];
    sums[i] = sum - kOffset * static_cast<int32_t>(simd::kInt4Summed);
  }
}

// Adds the products of the kept channels of a row, one after another.
SLUICE_INLINE VecF AddKept(const simd::KeptChannels& kept, int64_t row, int64_t col, VecF y) {
  for (int64_t i = 0; i < kept.count; ++i) {
    const VecF x = Broadcast(kept.x[row * kept.ldx + kept.channels[i]]);
    y = y + x * Load(kept.weights + i * kept.ldw + col);
  }
  return y;
}

// Completes finished sums [rows, width] of x plus kOffset, and writes them.
template <int32_t kOffset>
__attribute__((noinline)) static void WriteInt8Tile(const simd::Int8Block& block, int64_t row,
                                                    int64_t rows, int64_t col, int64_t width,
                                                    const int32_t* sums) {
  const int64_t cols = block.cols - col < width ? block.cols - col : width;
  const simd::KeptChannels kept = block.kept;
  for (int64_t c = 0; c < cols; c += kLanes) {
    const int64_t n = cols - c;
    const VecF scale = Load(block.scales + col + c);
    const VecF bias = block.bias != nullptr ? LoadUpTo(block.bias + col + c, n) : VecF{};
    const VecI correction = kOffset != 0 ? LoadInts(block.corrections + col + c) : VecI{};
    for (int64_t r = 0; r < rows; ++r) {
      const VecI sum = LoadInts(sums + r * width + c) - correction;
      VecF y = __builtin_convertvector(sum, VecF) * Broadcast(block.row_scales[row + r]) * scale;
      y = AddKept(kept, row + r, col + c, y);
      if (block.bias != nullptr) y = y + bias;
      float* const out = block.out + (row + r) * block.ldo + col + c;
      if (block.accumulate) y = LoadUpTo(out, n) + y;
      StoreUpTo(out, y, n);
    }
  }
}

// What the units share. An element of a panel is four values of a column.
template <int32_t kOffset>
struct Int8Sums {
  typedef simd::Int8Block Block;
  typedef int32_t Element;
  typedef VecI Column;
  typedef VecI Sum;
  typedef int32_t Total;
  static constexpr bool kOnePanel = true;

  static void WriteTile(const Block& block, int64_t row, int64_t rows, int64_t col, int64_t width,
                        const int32_t* sums) {
    WriteInt8Tile<kOffset>(block, row, rows, col, width, sums);
  }
};

}  // namespace sluice::kernels::SLUICE_SIMD_NAMESPACE
