// GEMM over panels of f32 and bf16. Included by table.inc; see vec.h for the rules.
#pragma once

#include "kernels/cpu/simd/gemm_tiles.h"

namespace sluice::kernels::SLUICE_SIMD_NAMESPACE {

inline constexpr int kPanelCols = kPanelVectors * kLanes;

// With kWhole all columns of the tile belong to the block.
template <bool kWhole>
SLUICE_INLINE void WriteSums(const simd::GemmBlock& block, int64_t row, int64_t rows, int64_t col,
                             int64_t width, const float* sums) {
  const int64_t cols = kWhole ? width : block.cols - col;
  const float* bias = block.bias == nullptr ? nullptr : block.bias + col;
  for (int64_t r = 0; r < rows; ++r) {
    float* out = block.out + (row + r) * block.ldo + col;
    for (int64_t c = 0; c < cols; c += kLanes) {
      const int64_t n = kWhole ? kLanes : cols - c;
      VecF sum = Load(sums + r * width + c);
      if (bias != nullptr) sum += LoadUpTo(bias + c, n);
      if (block.accumulate) sum = LoadUpTo(out + c, n) + sum;
      StoreUpTo(out + c, sum, n);
    }
  }
}

// Completes finished sums [rows, width] with the block's bias and accumulation, and writes them. It
// is not inlined, because the registers that it needs would be missing in the loop over k.
__attribute__((noinline)) static void WriteTile(const simd::GemmBlock& block, int64_t row,
                                                int64_t rows, int64_t col, int64_t width,
                                                const float* sums) {
  if (block.cols - col >= width) {
    WriteSums<true>(block, row, rows, col, width, sums);
  } else {
    WriteSums<false>(block, row, rows, col, width, sums);
  }
}

// What the units of f32 sums share; see gemm_tiles.h.
struct FloatSums {
  typedef simd::GemmBlock Block;
  typedef float X;
  typedef VecF Column;
  typedef VecF Sum;
  typedef float Total;
  static constexpr int kPanelCols = SLUICE_SIMD_NAMESPACE::kPanelCols;
  static constexpr bool kOnePanel = kLanes == 16;

  SLUICE_INLINE const float* XOf(const Block& block) { return block.x; }
  SLUICE_INLINE int64_t Stride(const Block& block) { return block.ldx; }
  SLUICE_INLINE VecF Spread(float x) { return Broadcast(x); }
  SLUICE_INLINE VecF Add(VecF a, VecF column, VecF sum) { return Fma(a, column, sum); }
  SLUICE_INLINE void StorePanel(float* to, const VecF* sum) {
#pragma GCC unroll 2
    for (int c = 0; c < kPanelVectors; ++c) Store(to + c * kLanes, sum[c]);
  }
  static void WriteTile(const Block& block, int64_t row, int64_t rows, int64_t col, int64_t width,
                        const float* sums) {
    SLUICE_SIMD_NAMESPACE::WriteTile(block, row, rows, col, width, sums);
  }
};

// Rows of f32 panels.
struct F32Row : FloatSums {
  typedef float Element;
  static constexpr int kAtOnce = SLUICE_SIMD_UNROLL(2);
  SLUICE_INLINE void Widen(const float* row, VecF* columns) {
    for (int c = 0; c < kPanelVectors; ++c) columns[c] = Load(row + c * kLanes);
  }
};

// Rows of bf16 panels. A bf16 is the upper half of an f32, and the two columns that belong to the
// same lane of two vectors share a word, so that one load, a shift and a mask give both vectors
// exactly and no lane moves.
struct BF16Row : FloatSums {
  typedef uint16_t Element;
  static constexpr int kAtOnce = SLUICE_SIMD_UNROLL(8);
  SLUICE_INLINE void Widen(const uint16_t* row, VecF* columns) {
    static_assert(kPanelVectors == 2);
    const VecI pairs = LoadInts(row);
    columns[0] = reinterpret_cast<VecF>(pairs << 16);
    columns[1] = reinterpret_cast<VecF>(pairs & -65536);
  }
};

}  // namespace sluice::kernels::SLUICE_SIMD_NAMESPACE
