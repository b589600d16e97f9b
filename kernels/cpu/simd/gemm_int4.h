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

// Returns kLanes zero points.
SLUICE_INLINE VecI LoadZeros(const uint8_t* zeros) {
  typedef uint8_t Bytes __attribute__((vector_size(SLUICE_SIMD_LANES), aligned(1), may_alias));
  return __builtin_convertvector(*reinterpret_cast<const Bytes*>(zeros), VecI);
}

// Adds the products of `eights` times eight values of R rows by P panels to `sum`. Panels lie
// `panel` bytes apart.
template <typename Unit, int R, int P>
SLUICE_INLINE void AddGroup(RowsOf<Unit, R>& x, const uint8_t*& w, int64_t eights, int64_t panel,
                            VecI (&sum)[R][P * kPanelVectors]) {
  constexpr int64_t kRowBytes = Unit::kPanelCols * int64_t{4};
  constexpr int64_t kAhead = 1024;
  for (int64_t i = 0; i < eights; ++i, w += kRowBytes, x.Advance(2)) {
    VecI column[2][P * kPanelVectors];
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      __builtin_prefetch(w + p * panel + kAhead);
      if constexpr (kRowBytes > kCacheLine) __builtin_prefetch(w + p * panel + kAhead + kCacheLine);
      Unit::Unpack(w + p * panel, column[0] + p * kPanelVectors, column[1] + p * kPanelVectors);
    }
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const VecI a = Unit::SpreadSigned(x.At(r, half));
#pragma GCC unroll 8
        for (int c = 0; c < P * kPanelVectors; ++c) {
          sum[r][c] = Unit::AddCodes(a, column[half][c], sum[r][c]);
        }
      }
    }
  }
}

// Completes the sums of a tile, and writes them.
template <typename Unit, int R, int P>
SLUICE_INLINE void WriteInt4Tile(const simd::Int4Block& block, int64_t row, int64_t col,
                                 const VecF (&sum)[R][P * Unit::kTotals]) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const VecF row_scale = Broadcast(block.row_scales[row + r]);
#pragma GCC unroll 8
    for (int c = 0; c < P * Unit::kTotals; ++c) {
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

// Computes rows [row, row + R) by P panels from column `col` on.
template <typename Unit, int R, int P>
static void Int4Tile(const simd::Int4Block& block, int64_t row, int64_t col) {
  constexpr int kPanelCols = Unit::kPanelCols;
  const int64_t groups = (block.k + block.group - 1) / block.group;
  const int64_t panel = block.k * kPanelCols / 2, scales_of_panel = groups * kPanelCols;
  RowsOf<Unit, R> x(Unit::XOf(block) + row * Unit::Stride(block), Unit::Stride(block));
  const uint8_t* w = static_cast<const uint8_t*>(block.panels) + col * block.k / 2;
  const float* scales = block.scales + col * groups;
  const uint8_t* zeros = block.zeros == nullptr ? nullptr : block.zeros + col * groups;
  const int32_t* sums = block.sums + row * block.sums_stride;
  VecF total[R][P * Unit::kTotals] = {};
  for (int64_t g = 0, done = 0; g < groups; ++g, done += block.group) {
    const int64_t depth = block.k - done < block.group ? block.k - done : block.group;
    VecI sum[R][P * kPanelVectors] = {};
    AddGroup<Unit, R, P>(x, w, depth / 8, panel, sum);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      int32_t of_x = 0;
      for (int64_t i = 0; i < depth / simd::kInt4Summed; ++i) {
        of_x += sums[r * block.sums_stride + i];
      }
      const VecI all = of_x - VecI{};
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) {
        VecI finished[Unit::kTotals];
        Unit::Finish(&sum[r][p * kPanelVectors], finished);
#pragma GCC unroll 2
        for (int c = 0; c < Unit::kTotals; ++c) {
          const int64_t place = p * scales_of_panel + c * kLanes;
          finished[c] -= zeros == nullptr ? 8 * all : LoadZeros(zeros + place) * all;
          VecF& y = total[r][p * Unit::kTotals + c];
          y = y + __builtin_convertvector(finished[c], VecF) * Load(scales + place);
        }
      }
    }
    sums += depth / simd::kInt4Summed;
    scales += kPanelCols;
    if (zeros != nullptr) zeros += kPanelCols;
  }
  WriteInt4Tile<Unit, R, P>(block, row, col, total);
}

// Returns the number of panels that a tile of `rows` rows takes at once; see PanelsAtOnce.
template <typename Unit>
inline constexpr int Int4PanelsAtOnce(int64_t rows) {
  return rows == 1 ? (kLanes == 16 ? 4 : 2) : rows == 2 && kLanes == 16 ? 2 : 1;
}

// Calls the tile function for `rows` in [1, R].
template <typename Unit, int R>
static void DispatchInt4Tile(const simd::Int4Block& block, int64_t row, int64_t rows, int panels,
                             int64_t col) {
  if (rows < R) {
    if constexpr (R > 1) DispatchInt4Tile<Unit, R - 1>(block, row, rows, panels, col);
  } else if (panels == Int4PanelsAtOnce<Unit>(R)) {
    Int4Tile<Unit, R, Int4PanelsAtOnce<Unit>(R)>(block, row, col);
  } else {
    for (int p = 0; p < panels; ++p) Int4Tile<Unit, R, 1>(block, row, col + p * Unit::kPanelCols);
  }
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
    WriteInt4Tile<Unit, 1, 1>(block, row + r, col, one);
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
  const int64_t step = tiles == 1 ? Int4PanelsAtOnce<Unit>(block.rows) : 1;
  for (int64_t p = 0; p < panels; p += step) {
    const int count = static_cast<int>(panels - p < step ? panels - p : step);
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t row = block.rows * t / tiles, end = block.rows * (t + 1) / tiles;
      DispatchInt4Tile<Unit, Unit::kRows>(block, row, end - row, count, p * Unit::kPanelCols);
    }
  }
}

}  // namespace sluice::kernels::SLUICE_SIMD_NAMESPACE
