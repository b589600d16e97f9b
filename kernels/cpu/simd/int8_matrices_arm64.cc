// Products in int8 by SMMLA of ARM64, which multiplies eight values of two rows with eight values
// of two columns. Panels and rows of x have the layout of SDOT. SDOT multiplies single rows.
#define SLUICE_SIMD_LANES 4
#define SLUICE_SIMD_NAMESPACE simd_int8_matrices_arm64
#include "kernels/cpu/simd/gemm_int8_dots.h"

namespace sluice::kernels::SLUICE_SIMD_NAMESPACE {

inline constexpr int kColumnPairs = Int8Dots::kPanelCols / 2;

typedef int32x4_t Square;  // [2, 2], the sums of two rows and two columns

// Makes the columns of two rows of a panel: for each pair of columns, eight values of both.
SLUICE_INLINE void ColumnsOf(const VecI (&first)[kPanelVectors],
                             const VecI (&second)[kPanelVectors],
                             int8x16_t (&columns)[kColumnPairs]) {
#pragma GCC unroll 2
  for (int c = 0; c < kPanelVectors; ++c) {
    const auto fours = reinterpret_cast<int32x4_t>(first[c]);
    const auto next = reinterpret_cast<int32x4_t>(second[c]);
    columns[2 * c] = vreinterpretq_s8_s32(vzip1q_s32(fours, next));
    columns[2 * c + 1] = vreinterpretq_s8_s32(vzip2q_s32(fours, next));
  }
}

// Adds the products of eight values of P pairs of rows, from `x` on, to `sum`.
template <int P>
SLUICE_INLINE void AddSquares(const int8_t* x, int64_t stride,
                              const int8x16_t (&columns)[kColumnPairs],
                              Square (&sum)[P][kColumnPairs]) {
#pragma GCC unroll 6
  for (int p = 0; p < P; ++p) {
    const int8x16_t rows =
        vcombine_s8(vld1_s8(x + 2 * p * stride), vld1_s8(x + (2 * p + 1) * stride));
#pragma GCC unroll 4
    for (int c = 0; c < kColumnPairs; ++c) sum[p][c] = vmmlaq_s32(sum[p][c], rows, columns[c]);
  }
}

// Takes the sums of each row from P pairs.
template <int P>
SLUICE_INLINE void TakeRows(const Square (&sum)[P][kColumnPairs],
                            VecI (&rows)[2 * P][kPanelVectors]) {
#pragma GCC unroll 6
  for (int p = 0; p < P; ++p) {
#pragma GCC unroll 2
    for (int c = 0; c < kPanelVectors; ++c) {
      const int64x2_t left = vreinterpretq_s64_s32(sum[p][2 * c]);
      const int64x2_t right = vreinterpretq_s64_s32(sum[p][2 * c + 1]);
      rows[2 * p][c] = reinterpret_cast<VecI>(vzip1q_s64(left, right));
      rows[2 * p + 1][c] = reinterpret_cast<VecI>(vzip2q_s64(left, right));
    }
  }
}

// Computes rows [row, row + 2 P) with the panel of column `col`.
template <int P>
static void TileBySquares(const simd::Int8Block& block, int64_t row, int64_t col) {
  const int8_t* x = static_cast<const int8_t*>(block.x) + row * block.stride;
  const int32_t* w = static_cast<const int32_t*>(block.panels) + col * block.k;
  Square sum[P][kColumnPairs] = {};
  for (int64_t i = 0; i < block.k; i += 2, x += 8, w += 2 * Int8Dots::kPanelCols) {
    VecI first[kPanelVectors], second[kPanelVectors];
    Int8Dots::Widen(w, first);
    Int8Dots::Widen(w + Int8Dots::kPanelCols, second);
    __builtin_prefetch(reinterpret_cast<const char*>(w) + kReadAhead);
    int8x16_t columns[kColumnPairs];
    ColumnsOf(first, second, columns);
    AddSquares<P>(x, block.stride, columns, sum);
  }
  VecI rows[2 * P][kPanelVectors];
  TakeRows<P>(sum, rows);
  VecF y[2 * P][kPanelVectors];
#pragma GCC unroll 12
  for (int r = 0; r < 2 * P; ++r) Int8Dots::Complete(block, row + r, col, rows[r], y[r]);
  WriteTile(block, row, col, y);
}

template <int P>
static void TileBySquares(const simd::Int4Block& block, int64_t row, int64_t col) {
  const int64_t groups = (block.k + block.group - 1) / block.group;
  const int8_t* x = static_cast<const int8_t*>(block.x) + row * block.stride;
  const uint8_t* w = static_cast<const uint8_t*>(block.panels) + col * block.k / 2;
  const float* scales = block.scales + col * groups;
  const uint8_t* zeros = block.zeros == nullptr ? nullptr : block.zeros + col * groups;
  const int32_t* begins = block.begins + row * block.begins_stride;
  VecF total[2 * P][kPanelVectors] = {};
  for (int64_t left = block.k; left > 0; left -= block.group) {
    const int64_t depth = left < block.group ? left : block.group;
    Square sum[P][kColumnPairs] = {};
    for (int64_t i = 0; i < depth; i += 8, x += 8, w += Int4Dots::kPanelCols * int64_t{4}) {
      VecI column[2][kPanelVectors];
      UnpackAhead<Int4Dots>(w, column);
      int8x16_t columns[kColumnPairs];
      ColumnsOf(column[0], column[1], columns);
      AddSquares<P>(x, block.stride, columns, sum);
    }
    VecI products[2 * P][kPanelVectors], rows[2 * P][kPanelVectors];
    TakeRows<P>(sum, products);
    BeginSums(begins, block.begins_stride, depth, rows);
#pragma GCC unroll 12
    for (int r = 0; r < 2 * P; ++r) {
#pragma GCC unroll 2
      for (int c = 0; c < kPanelVectors; ++c) rows[r][c] += products[r][c];
    }
    AddGroup<Int4Dots, 2 * P>(rows, begins, block.begins_stride, depth, scales, zeros, total);
    begins += depth / simd::kInt4Summed;
    scales += Int4Dots::kPanelCols;
    if (zeros != nullptr) zeros += Int4Dots::kPanelCols;
  }
  WriteInt4Tile(block, row, col, total);
}

// Computes one row with the panel of column `col`.
static void OneRow(const simd::Int8Block& block, int64_t row, int64_t col) {
  Tile<Int8Dots, 1, 1, true>(block, {}, row, col);
}
static void OneRow(const simd::Int4Block& block, int64_t row, int64_t col) {
  Int4Tile<Int4Dots, 1>(block, row, col);
}

// Calls the tile function for `pairs` in [1, P].
template <int P, typename Block>
static void DispatchSquares(const Block& block, int64_t row, int64_t pairs, int64_t col) {
  if constexpr (P > 1) {
    if (pairs < P) return DispatchSquares<P - 1>(block, row, pairs, col);
  }
  TileBySquares<P>(block, row, col);
}

// P is the most pairs of rows of a tile.
template <int P, typename Block>
static void GemmBySquares(const Block& block) {
  const int64_t pairs = block.rows / 2, tiles = (pairs + P - 1) / P;
  for (int64_t col = 0; col < block.cols; col += Int8Dots::kPanelCols) {
    for (int64_t t = 0; t < tiles; ++t) {  // tiles of nearly equal height
      const int64_t first = pairs * t / tiles, end = pairs * (t + 1) / tiles;
      DispatchSquares<P>(block, 2 * first, end - first, col);
    }
    if (block.rows % 2 != 0) OneRow(block, block.rows - 1, col);
  }
}

static void Int8GemmBySquares(const simd::Int8Block& block) {
  if (block.rows == 1) return Gemm<Int8Dots>(block);
  GemmBySquares<kTileRows / 2>(block);
}

static void Int4GemmBySquares(const simd::Int4Block& block) {
  GemmBySquares<Int4Dots::kRows / 2>(block);
}

}  // namespace sluice::kernels::SLUICE_SIMD_NAMESPACE

namespace sluice::kernels::simd {

constexpr Int8Table kInt8MatricesArm64 = {
    .panel_cols = SLUICE_SIMD_NAMESPACE::Int8Dots::kPanelCols,
    .tile_rows = SLUICE_SIMD_NAMESPACE::kTileRows,
    .value_bytes = 1,
    .value_bytes_int4 = 1,
    .slack_rows = 0,
    .quantize_row = SLUICE_SIMD_NAMESPACE::QuantizeRow<SLUICE_SIMD_NAMESPACE::ValueOfX,
                                                       SLUICE_SIMD_NAMESPACE::kOffsetOfX>,
    .gemm = SLUICE_SIMD_NAMESPACE::Int8GemmBySquares,
    .quantize_row_int4 = SLUICE_SIMD_NAMESPACE::Int4Dots::Quantize,
    .gemm_int4 = SLUICE_SIMD_NAMESPACE::Int4GemmBySquares,
};

}  // namespace sluice::kernels::simd
