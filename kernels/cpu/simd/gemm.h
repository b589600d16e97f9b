// GEMM over panels of f32 and bf16. Included by table.inc; see vec.h for the rules.
#pragma once

#include "kernels/cpu/simd/gemm_tiles.h"

namespace sluice::kernels::SLUICE_SIMD_NAMESPACE {

inline constexpr int kPanelCols = kPanelVectors * kLanes;

// The members that all units with f32 sums share; see gemm_tiles.h.
struct FloatSums {
  typedef simd::GemmBlock Block;
  typedef float X;
  typedef VecF Column;
  typedef VecF Sum;
  static constexpr int kPanelCols = SLUICE_SIMD_NAMESPACE::kPanelCols;
  static constexpr int kTotals = kPanelVectors;
  static constexpr bool kOnePanel = kLanes == 16;

  SLUICE_INLINE const float* XOf(const Block& block) { return block.x; }
  SLUICE_INLINE int64_t Stride(const Block& block) { return block.ldx; }
  SLUICE_INLINE VecF Spread(float x) { return Broadcast(x); }
  SLUICE_INLINE VecF Add(VecF a, VecF column, VecF sum) { return Fma(a, column, sum); }
  SLUICE_INLINE void Begin(const Block&, int64_t, VecF* sum) {
    for (int c = 0; c < kPanelVectors; ++c) sum[c] = VecF{};
  }
  SLUICE_INLINE void Complete(const Block&, int64_t, int64_t, const VecF* sum, VecF* y) {
    for (int c = 0; c < kPanelVectors; ++c) y[c] = sum[c];
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

// Rows of bf16 panels. A bf16 is the upper half of an f32. The two columns of the same lane of two
// vectors share a word. So one load, a shift and a mask give both vectors exactly, without moving
// lanes.
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
