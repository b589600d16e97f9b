// The GEMM over bf16 pairs by VDPBF16PS or, in tests without the instruction, by equivalent
// arithmetic.
#define SLUICE_SIMD_LANES 16
#define SLUICE_SIMD_NAMESPACE simd_avx512_bf16
#include "kernels/cpu/simd/gemm_pairs.h"

namespace sluice::kernels::SLUICE_SIMD_NAMESPACE {

// Adds the two products of each lane to `sum`, the upper ones first.
SLUICE_INLINE VecF AddPairs(VecF sum, VecI x, VecI w) {
#ifdef __AVX512BF16__
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(w));
#else
  sum = Fma(reinterpret_cast<VecF>(x & -65536), reinterpret_cast<VecF>(w & -65536), sum);
  return Fma(reinterpret_cast<VecF>(x << 16), reinterpret_cast<VecF>(w << 16), sum);
#endif
}

struct Dots {
  static constexpr int64_t kTileRows = 8;
  static constexpr int64_t kRowsAtOnce = kTileRows;
  static int64_t PanelsAtOnce(int64_t) { return 1; }

  static void Multiply(const PairsTile& tile) { Dispatch<kTileRows>(tile); }

 private:
  template <int R>
  static void Dispatch(const PairsTile& tile) {
    if constexpr (R > 1) {
      if (tile.rows < R) return Dispatch<R - 1>(tile);
    }
    Run<R>(tile);
  }

  // Multiplies all R rows of a tile by a panel.
  template <int R>
  static void Run(const PairsTile& tile) {
    const uint16_t* x = tile.x;
    const uint16_t* w = tile.panels;
    VecF sum[R][kPanelVectors] = {};
    if (!tile.first) {
      for (int r = 0; r < R; ++r) {
        for (int c = 0; c < kPanelVectors; ++c) {
          sum[r][c] = Load(tile.carried + r * simd::kPairsCols + c * kLanes);
        }
      }
    }
    for (int64_t step = 0; step < tile.steps; ++step, x += kTileRows * kStep) {
#pragma GCC unroll 4
      for (int64_t pair = 0; pair < kStep; pair += 2, w += 2 * kPanelCols) {
        VecI column[kPanelVectors];
#pragma GCC unroll 2
        for (int c = 0; c < kPanelVectors; ++c) {
          column[c] = LoadInts(w + c * 2 * kLanes);
          __builtin_prefetch(w + kReadAhead / sizeof(uint16_t) + c * 2 * kLanes);
        }
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          int32_t both;
          __builtin_memcpy(&both, x + r * kStep + pair, sizeof(both));
          const VecI a = both - VecI{};
#pragma GCC unroll 2
          for (int c = 0; c < kPanelVectors; ++c) sum[r][c] = AddPairs(sum[r][c], a, column[c]);
        }
      }
    }
    if (tile.last) return WriteTile(*tile.block, tile.row, tile.col, sum);
    for (int r = 0; r < R; ++r) {
      for (int c = 0; c < kPanelVectors; ++c) {
        Store(tile.carried + r * simd::kPairsCols + c * kLanes, sum[r][c]);
      }
    }
  }
};

}  // namespace sluice::kernels::SLUICE_SIMD_NAMESPACE

namespace sluice::kernels::simd {

void GemmOfPairsByDots(const GemmBlock& block) {
  SLUICE_SIMD_NAMESPACE::GemmOfPairs<SLUICE_SIMD_NAMESPACE::Dots>(block);
}

}  // namespace sluice::kernels::simd
