// Products in int8 by AMX: two tiles of x and the two halves of a panel keep four tiles of sums.
// Panels and rows of x have the layout of VPDPBUSD. That instruction multiplies the rows of blocks
// with too few rows for a tile; their speed is limited by memory.
#define SLUICE_SIMD_LANES 16
#define SLUICE_SIMD_NAMESPACE simd_int8_tiles
#include "kernels/cpu/simd/amx_config.h"
#include "kernels/cpu/simd/gemm_int8_dots.h"

namespace sluice::kernels::SLUICE_SIMD_NAMESPACE {

inline constexpr int64_t kRowsOfTile = 16;
inline constexpr int64_t kDepthOfTile = 64;  // values
inline constexpr int64_t kFewRows = 4;       // most rows that are multiplied without tiles
static_assert(simd::kInt8Depth % kDepthOfTile == 0);

// Multiplies up to 32 rows (Two) or 16 rows with the panel of column `col`. Tiles always read 16
// rows; the results of rows outside the block are not written.
template <bool Two>
static void RunTiles(const simd::Int8Block& block, int64_t row, int64_t col) {
  constexpr int64_t kCols = Int8Dots::kPanelCols, kHalf = kCols / 2;
  constexpr int64_t kFour = sizeof(int32_t);
  constexpr int64_t kStep = kDepthOfTile / kFour * kCols;  // elements of a panel
  alignas(kCacheLine) int32_t sums[2 * kRowsOfTile * kCols];
  const char* x = static_cast<const char*>(block.x) + row * block.stride;
  const char* const second = x + kRowsOfTile * block.stride;
  const int32_t* w = static_cast<const int32_t*>(block.panels) + col * block.k;
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (Two) {
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t done = 0; done < block.k * kFour; done += kDepthOfTile, w += kStep) {
    _tile_loadd(6, w, kCols * kFour);
    _tile_loadd(7, w + kHalf, kCols * kFour);
    _tile_loadd(4, x + done, block.stride);
    _tile_dpbusd(0, 4, 6);
    _tile_dpbusd(1, 4, 7);
    if constexpr (Two) {
      _tile_loadd(5, second + done, block.stride);
      _tile_dpbusd(2, 5, 6);
      _tile_dpbusd(3, 5, 7);
    }
  }
  _tile_stored(0, sums, kCols * kFour);
  _tile_stored(1, sums + kHalf, kCols * kFour);
  if constexpr (Two) {
    _tile_stored(2, sums + kRowsOfTile * kCols, kCols * kFour);
    _tile_stored(3, sums + kRowsOfTile * kCols + kHalf, kCols * kFour);
  }
  asm volatile("" : : "r"(sums) : "memory");  // the compiler does not see the tile stores
  const int64_t most = (Two ? 2 : 1) * kRowsOfTile, left = block.rows - row;
  for (int64_t r = 0; r < (left < most ? left : most); ++r) {
    VecI sum[kPanelVectors];
    Int8Dots::Begin(block, col, sum);
    for (int c = 0; c < kPanelVectors; ++c) sum[c] += LoadInts(sums + r * kCols + c * kLanes);
    VecF y[1][kPanelVectors];
    Int8Dots::Complete(block, row + r, col, sum, y[0]);
    WriteTile(block, row + r, col, y);
  }
}

static void GemmByTiles(const simd::Int8Block& block) {
  if (block.rows <= kFewRows) return Gemm<Int8Dots>(block);
  asm volatile("" : : "r"(block.x) : "memory");  // the compiler does not see the tile loads either
  _tile_loadconfig(&kTileConfig);
  for (int64_t col = 0; col < block.cols; col += Int8Dots::kPanelCols) {
    for (int64_t row = 0; row < block.rows; row += 2 * kRowsOfTile) {
      if (block.rows - row > kRowsOfTile) {
        RunTiles<true>(block, row, col);
      } else {
        RunTiles<false>(block, row, col);
      }
    }
  }
  _tile_release();
}

}  // namespace sluice::kernels::SLUICE_SIMD_NAMESPACE

namespace sluice::kernels::simd {

constexpr Int8Table kInt8Tiles = {
    .panel_cols = SLUICE_SIMD_NAMESPACE::Int8Dots::kPanelCols,
    .tile_rows = 2 * SLUICE_SIMD_NAMESPACE::kRowsOfTile,
    .value_bytes = 1,
    .value_bytes_int4 = 1,
    .slack_rows = SLUICE_SIMD_NAMESPACE::kRowsOfTile - 1,
    .quantize_row = SLUICE_SIMD_NAMESPACE::QuantizeRow<uint8_t, kInt8Offset>,
    .gemm = SLUICE_SIMD_NAMESPACE::GemmByTiles,
    .quantize_row_int4 = SLUICE_SIMD_NAMESPACE::Int4Dots::Quantize,
    .gemm_int4 = SLUICE_SIMD_NAMESPACE::Int4Gemm<SLUICE_SIMD_NAMESPACE::Int4Dots>,
};

}  // namespace sluice::kernels::simd
