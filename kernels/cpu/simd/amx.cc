// The GEMM over bf16 pairs by AMX. Two tiles of x by the two halves of a panel keep four tiles of sums.
#define SLUICE_SIMD_LANES 16
#define SLUICE_SIMD_NAMESPACE simd_amx
#include "kernels/cpu/simd/gemm_pairs.h"

namespace sluice::kernels::SLUICE_SIMD_NAMESPACE {

// All eight tiles have 16 rows of 64 bytes.
struct alignas(kCacheLine) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);
inline constexpr TileConfig kTileConfig;

struct Tiles {
  static constexpr int64_t kTileRows = 16;
  static constexpr int64_t kRowsAtOnce = 2 * kTileRows;
  static int64_t PanelsAtOnce(int64_t /*rows*/) { return 1; }

  static void Multiply(const PairsTile& tile) {
    tile.rows > kTileRows ? Run<true>(tile) : Run<false>(tile);
  }

 private:
  static constexpr int64_t kHalf = kPanelCols / 2;
  static constexpr int64_t kBytes = sizeof(uint16_t);

  // 32 rows by a panel, or 16.
  template <bool Two>
  static void Run(const PairsTile& tile) {
    constexpr int64_t kAhead = 2 * kPanelStep;
    alignas(kCacheLine) float sums[kRowsAtOnce * kPanelCols];
    if (tile.first) {
      _tile_zero(0);
      _tile_zero(1);
      if constexpr (Two) {
        _tile_zero(2);
        _tile_zero(3);
      }
    } else {
      LoadSums<Two>(tile.carried);
    }
    const uint16_t* x = tile.x;
    const uint16_t* w = tile.panels;
    for (int64_t step = 0; step < tile.steps; ++step, x += kTileRows * kStep, w += kPanelStep) {
      if constexpr (!Two) {
#pragma GCC unroll 32
        for (int64_t line = 0; line < kPanelStep; line += kCacheLine / kBytes) {
          __builtin_prefetch(w + kAhead + line);
        }
      }
      _tile_loadd(6, w, kPanelCols * 2 * kBytes);
      _tile_loadd(7, w + kHalf * 2, kPanelCols * 2 * kBytes);
      _tile_loadd(4, x, kStep * kBytes);
      if constexpr (Two) _tile_loadd(5, x + tile.tile_stride, kStep * kBytes);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      if constexpr (Two) {
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
      }
    }
    if (!tile.last) {
      StoreSums<Two>(tile.carried, simd::kPairsCols);
      return;
    }
    StoreSums<Two>(sums, kPanelCols);
    WriteTile(*tile.block, tile.row, tile.rows, tile.col, kPanelCols, sums);
  }

  template <bool Two>
  static void LoadSums(const float* from) {
    constexpr int64_t kStride = simd::kPairsCols * sizeof(float);
    _tile_loadd(0, from, kStride);
    _tile_loadd(1, from + kHalf, kStride);
    if constexpr (Two) {
      _tile_loadd(2, from + kTileRows * simd::kPairsCols, kStride);
      _tile_loadd(3, from + kTileRows * simd::kPairsCols + kHalf, kStride);
    }
  }

  template <bool Two>
  static void StoreSums(float* to, int64_t width) {
    const int64_t stride = width * static_cast<int64_t>(sizeof(float));
    _tile_stored(0, to, stride);
    _tile_stored(1, to + kHalf, stride);
    if constexpr (Two) {
      _tile_stored(2, to + kTileRows * width, stride);
      _tile_stored(3, to + kTileRows * width + kHalf, stride);
    }
    asm volatile("" : : "r"(to) : "memory");  // written unseen by the compiler
  }
};

}  // namespace sluice::kernels::SLUICE_SIMD_NAMESPACE

namespace sluice::kernels::simd {

void GemmOfPairsByTiles(const GemmBlock& block) {
  _tile_loadconfig(&SLUICE_SIMD_NAMESPACE::kTileConfig);
  SLUICE_SIMD_NAMESPACE::GemmOfPairs<SLUICE_SIMD_NAMESPACE::Tiles>(block);
  _tile_release();
}

}  // namespace sluice::kernels::simd
