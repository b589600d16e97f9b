// Products of quantised rows by weights in int4, for the units of the products in int8. See vec.h
// for the rules and int8.h for the arithmetic. Few rows unpack the codes as they read them, and are
// bound by memory; more rows share codes that are unpacked before.
//
// A `Unit` has what one of int8 has (gemm_tiles.h), and
//   kRows, kManyRows         the rows of a tile of few, and of many rows
//   kTotals                  the vectors of finished sums of a panel
//   Unpack                   the codes of eight rows of a panel, as two rows of columns
//   Expand                   the same, with 8 subtracted
//   SpreadSigned             broadcasts four values of x, as signed ones
//   AddCodes, AddExpanded    add products by what Unpack, and Expand, give
//   Finish                   the finished sums of a panel
//   kOffset                  what x has in products with what Expand gives
#pragma once

#include "kernels/cpu/simd/gemm_int8.h"

namespace sluice::kernels::SLUICE_SIMD_NAMESPACE {

// Returns kLanes zero points. They are widened in two steps, each of which is an instruction.
SLUICE_INLINE VecI LoadZeros(const uint8_t* zeros) {
  typedef uint8_t Bytes __attribute__((vector_size(SLUICE_SIMD_LANES), aligned(1), may_alias));
  typedef uint16_t Words __attribute__((vector_size(2 * SLUICE_SIMD_LANES)));
  const Words words = __builtin_convertvector(*reinterpret_cast<const Bytes*>(zeros), Words);
  return __builtin_convertvector(words, VecI);
}

// Computes the products of `eights` times eight values of R rows by a panel. With few rows, each
// half of the codes has sums of its own, so that enough are in flight.
template <typename Unit, int R>
SLUICE_INLINE void SumGroup(RowsOf<Unit, R>& x, const uint8_t*& w, int64_t eights,
                            VecI (&sum)[R][kPanelVectors]) {
  constexpr int64_t kRowBytes = Unit::kPanelCols * int64_t{4};
  constexpr int kParts = R <= 2 ? 2 : 1;
  VecI part[kParts][R][kPanelVectors] = {};
  for (int64_t i = 0; i < eights; ++i, w += kRowBytes, x.Advance(2)) {
    VecI column[2][kPanelVectors];
#pragma GCC unroll 2
    for (int64_t at = 0; at < kRowBytes; at += kCacheLine) __builtin_prefetch(w + kReadAhead + at);
    Unit::Unpack(w, column[0], column[1]);
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const VecI a = Unit::SpreadSigned(x.At(r, half));
#pragma GCC unroll 2
        for (int c = 0; c < kPanelVectors; ++c) {
          VecI& to = part[half % kParts][r][c];
          to = Unit::AddCodes(a, column[half][c], to);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int c = 0; c < kPanelVectors; ++c) {
      sum[r][c] = part[0][r][c];
      if constexpr (kParts == 2) sum[r][c] += part[1][r][c];
    }
  }
}

// Returns the sum of the values of x in `depth` rows, in every lane.
SLUICE_INLINE VecI SpreadSumOf(const int32_t* sums, int64_t depth) {
  VecI sum = sums[0] - VecI{};
  for (int64_t i = 1; i < depth / simd::kInt4Summed; ++i) sum += sums[i];
  return sum;
}

// Completes the sums of a tile, and writes them.
template <typename Unit, int R>
SLUICE_INLINE void WriteInt4Tile(const simd::Int4Block& block, int64_t row, int64_t col,
                                 const VecF (&sum)[R][Unit::kTotals]) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const VecF row_scale = Broadcast(block.row_scales[row + r]);
#pragma GCC unroll 2
    for (int c = 0; c < Unit::kTotals; ++c) {
      const int64_t first = col + c * kLanes, n = block.cols - first;
      if (n <= 0) break;
      float* const out = block.out + (row + r) * block.ldo + first;
      VecF y = sum[r][c] * row_scale;
      if (block.bias != nullptr) y = y + LoadUpTo(block.bias + first, n);
      if (block.accumulate) y = LoadUpTo(out, n) + y;
      StoreUpTo(out, y, n);
    }
  }
}

// Computes rows [row, row + R) by the panel of column `col`.
template <typename Unit, int R>
static void Int4Tile(const simd::Int4Block& block, int64_t row, int64_t col) {
  constexpr int kTotals = Unit::kTotals;
  const int64_t groups = (block.k + block.group - 1) / block.group;
  RowsOf<Unit, R> x(Unit::XOf(block) + row * Unit::Stride(block), Unit::Stride(block));
  const uint8_t* w = static_cast<const uint8_t*>(block.panels) + col * block.k / 2;
  const float* scales = block.scales + col * groups;
  const uint8_t* zeros = block.zeros == nullptr ? nullptr : block.zeros + col * groups;
  const int32_t* sums = block.sums + row * block.sums_stride;
  VecF total[R][kTotals] = {};
  for (int64_t left = block.k; left > 0; left -= block.group) {
    const int64_t depth = left < block.group ? left : block.group;
    VecI sum[R][kPanelVectors];
    SumGroup<Unit, R>(x, w, depth / 8, sum);
    VecI zero[kTotals];
    VecF scale[kTotals];
#pragma GCC unroll 2
    for (int c = 0; c < kTotals; ++c) {
      zero[c] = zeros == nullptr ? 8 - VecI{} : LoadZeros(zeros + c * kLanes);
      scale[c] = Load(scales + c * kLanes);
      __builtin_prefetch(scales + c * kLanes + kReadAhead / sizeof(VecF));
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const VecI of_x = SpreadSumOf(sums + r * block.sums_stride, depth);
      VecI finished[kTotals];
      Unit::Finish(sum[r], finished);
#pragma GCC unroll 2
      for (int c = 0; c < kTotals; ++c) {
        finished[c] -= zero[c] * of_x;
        total[r][c] = total[r][c] + __builtin_convertvector(finished[c], VecF) * scale[c];
      }
    }
    sums += depth / simd::kInt4Summed;
    scales += Unit::kPanelCols;
    if (zeros != nullptr) zeros += Unit::kPanelCols;
  }
  WriteInt4Tile<Unit, R>(block, row, col, total);
}

// Calls the tile function for `rows` in [1, R].
template <typename Unit, int R>
static void DispatchInt4Tile(const simd::Int4Block& block, int64_t row, int64_t rows, int64_t col) {
  if constexpr (R > 1) {
    if (rows < R) return DispatchInt4Tile<Unit, R - 1>(block, row, rows, col);
  }
  Int4Tile<Unit, R>(block, row, col);
}

// Part of a panel, as products of many rows read it.
template <typename Unit>
struct ExpandedPanel {
  static constexpr int64_t kDepth = 1024;  // a multiple of every group
  alignas(kCacheLine) VecI columns[kDepth / 4][kPanelVectors];
  // Unit::kOffset times the sums of the columns of each group.
  VecI corrections[kDepth / simd::kInt4Summed][Unit::kTotals];

  // Expands `depth` rows.
  void Fill(const uint8_t* codes, int64_t depth, int64_t group) {
    constexpr int64_t kRowBytes = Unit::kPanelCols * int64_t{4};
    for (int64_t step = 0; step < depth / 4; step += 2, codes += kRowBytes) {
      __builtin_prefetch(codes + 4 * kRowBytes);
      Unit::Expand(codes, columns[step], columns[step + 1]);
    }
    if constexpr (Unit::kOffset != 0) {
      const VecI offset = Unit::Spread(static_cast<int32_t>(0x01010101u * Unit::kOffset));
      for (int64_t g = 0, step = 0; step < depth / 4; ++g) {
        VecI sum[kPanelVectors] = {};
        const int64_t end = step + group / 4 < depth / 4 ? step + group / 4 : depth / 4;
        for (; step < end; ++step) {
#pragma GCC unroll 2
          for (int c = 0; c < kPanelVectors; ++c) {
            sum[c] = Unit::AddExpanded(offset, columns[step][c], sum[c]);
          }
        }
        Unit::Finish(sum, corrections[g]);
      }
    }
  }
};

// Adds products of R rows by `depth` rows of an expanded panel to `totals`; `x`, `sums`, `scales`
// and `zeros` are those of its first row. Meanwhile fetches its share of the codes that are
// expanded next: for each row of the panel `ahead.step` bytes.
template <typename Unit, int R>
static void ExpandedTile(const simd::Int4Block& block, const ExpandedPanel<Unit>& panel,
                         const Ahead& ahead, int64_t depth, const typename Unit::X* x,
                         const int32_t* sums, const float* scales, const uint8_t* zeros,
                         VecF (*totals)[Unit::kTotals]) {
  RowsOf<Unit, R> rows(x, Unit::Stride(block));
  VecF total[R][Unit::kTotals];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int c = 0; c < Unit::kTotals; ++c) total[r][c] = totals[r][c];
  }
  int64_t step = 0;
  for (int64_t g = 0; step < depth / 4; ++g) {
    const int64_t left = depth - step * 4, here = left < block.group ? left : block.group;
    for (int64_t i = 0; i < here * ahead.step; i += kCacheLine) {
      __builtin_prefetch(ahead.begin + step * 4 * ahead.step + i, 0, 2);
    }
    VecI sum[R][kPanelVectors] = {};
    for (const int64_t end = step + here / 4; step < end; ++step, rows.Advance(1)) {
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const VecI a = Unit::Spread(rows.At(r, 0));
#pragma GCC unroll 2
        for (int c = 0; c < kPanelVectors; ++c) {
          sum[r][c] = Unit::AddExpanded(a, panel.columns[step][c], sum[r][c]);
        }
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      VecI finished[Unit::kTotals];
      Unit::Finish(sum[r], finished);
      int32_t of_x = 0;
      if (zeros != nullptr) {
        for (int64_t i = 0; i < here / simd::kInt4Summed; ++i) {
          of_x += sums[r * block.sums_stride + i];
        }
      }
#pragma GCC unroll 2
      for (int c = 0; c < Unit::kTotals; ++c) {
        if constexpr (Unit::kOffset != 0) finished[c] -= panel.corrections[g][c];
        if (zeros != nullptr) finished[c] += (8 - LoadZeros(zeros + c * kLanes)) * of_x;
        total[r][c] =
            total[r][c] + __builtin_convertvector(finished[c], VecF) * Load(scales + c * kLanes);
      }
    }
    sums += here / simd::kInt4Summed;
    scales += Unit::kPanelCols;
    if (zeros != nullptr) zeros += Unit::kPanelCols;
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int c = 0; c < Unit::kTotals; ++c) totals[r][c] = total[r][c];
  }
}

// Calls ExpandedTile for `rows` in [1, R].
template <typename Unit, int R, typename... Args>
static void DispatchExpandedTile(int64_t rows, const Args&... args) {
  if constexpr (R > 1) {
    if (rows < R) return DispatchExpandedTile<Unit, R - 1>(rows, args...);
  }
  ExpandedTile<Unit, R>(args...);
}

// Computes rows [row, row + rows) by the panel of column `col`; `rows` is at most kManyAtOnce.
inline constexpr int64_t kManyAtOnce = 96;
template <typename Unit>
static void Int4Many(const simd::Int4Block& block, int64_t row, int64_t rows, int64_t col) {
  typedef ExpandedPanel<Unit> Panel;
  Panel panel;
  VecF totals[kManyAtOnce][Unit::kTotals];
  for (int64_t r = 0; r < rows; ++r) {
    for (int c = 0; c < Unit::kTotals; ++c) totals[r][c] = VecF{};
  }
  const int64_t groups = (block.k + block.group - 1) / block.group;
  const int64_t tiles = (rows + Unit::kManyRows - 1) / Unit::kManyRows;
  constexpr int64_t kRowBytes = Unit::kPanelCols / 2;
  const uint8_t* codes = static_cast<const uint8_t*>(block.panels) + col * block.k / 2;
  for (int64_t done = 0; done < block.k; done += Panel::kDepth) {
    const int64_t depth = block.k - done < Panel::kDepth ? block.k - done : Panel::kDepth;
    panel.Fill(codes + done * kRowBytes, depth, block.group);
    const int64_t group = col * groups + done / block.group * Unit::kPanelCols;
    const int64_t share = (kRowBytes + tiles - 1) / tiles;
    for (int64_t t = 0; t < tiles; ++t) {  // tiles of nearly equal heights
      const int64_t first = rows * t / tiles, end = rows * (t + 1) / tiles;
      const Ahead ahead = {
          false,
          reinterpret_cast<const char*>(codes + (done + depth) * kRowBytes) + t * share * depth,
          share};
      DispatchExpandedTile<Unit, Unit::kManyRows>(
          end - first, block, panel, ahead, depth,
          Unit::XOf(block) + (row + first) * Unit::Stride(block) + done / 4,
          block.sums + (row + first) * block.sums_stride + done / simd::kInt4Summed,
          block.scales + group, block.zeros == nullptr ? nullptr : block.zeros + group,
          totals + first);
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    VecF one[1][Unit::kTotals];
    for (int c = 0; c < Unit::kTotals; ++c) one[0][c] = totals[r][c];
    WriteInt4Tile<Unit, 1>(block, row + r, col, one);
  }
}

template <typename Unit>
static void Int4Gemm(const simd::Int4Block& block) {
  const int64_t panels = (block.cols + Unit::kPanelCols - 1) / Unit::kPanelCols;
  constexpr int64_t kFewTiles = 2;
  if (block.rows > kFewTiles * Unit::kRows) {
    const int64_t parts = (block.rows + kManyAtOnce - 1) / kManyAtOnce;
    for (int64_t p = 0; p < panels * parts; ++p) {
      const int64_t part = p % parts, row = block.rows * part / parts;
      Int4Many<Unit>(block, row, block.rows * (part + 1) / parts - row,
                     p / parts * Unit::kPanelCols);
    }
    return;
  }
  const int64_t tiles = block.rows > Unit::kRows ? kFewTiles : 1;
  for (int64_t p = 0; p < panels; ++p) {
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t row = block.rows * t / tiles, end = block.rows * (t + 1) / tiles;
      DispatchInt4Tile<Unit, Unit::kRows>(block, row, end - row, p * Unit::kPanelCols);
    }
  }
}

}  // namespace sluice::kernels::SLUICE_SIMD_NAMESPACE
