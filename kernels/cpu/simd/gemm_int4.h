// Products of quantised rows with int4 weights, for the units of the int8 products. See vec.h for
// the rules and int8.h for the arithmetic. Tiles of rows unpack the codes as they read them. If
// unpacking is much of the work, tiles of many rows share codes that are unpacked before.
//
// A `Unit` has the members of an int8 unit (gemm_tiles.h), and
//   kRows, kManyRows         the rows of a tile, and of one of several; measured to be best
//   kShared                  whether tiles of many rows share unpacked codes
//   kParts                   the lanes that are added to a finished sum
//   kSums                    the vectors of sums of a row of a panel, and of its unpacked codes
//   kInWords                 whether the sums of kInt4Summed rows are words, in int16
//   Words, Fold              with words: a vector, the target of AddCodes; adds it to a sum
//   Unpack                   the codes of eight rows of a panel, as two rows of columns
//   AddCodes                 adds products with unpacked codes
//   Finish                   the finished sums of a panel
//
// The sums of a group begin at -8 times the sum of its values of x, so that a zero point of 8 needs
// no extra work.
#pragma once

#include "kernels/cpu/simd/gemm_int8.h"

namespace sluice::kernels::SLUICE_SIMD_NAMESPACE {

// Returns kLanes zero points. They are widened in two steps, because each step is one instruction.
SLUICE_INLINE VecI LoadZeros(const uint8_t* zeros) {
  typedef uint8_t Bytes __attribute__((vector_size(SLUICE_SIMD_LANES), aligned(1), may_alias));
  typedef uint16_t Words __attribute__((vector_size(2 * SLUICE_SIMD_LANES)));
  const Words words = __builtin_convertvector(*reinterpret_cast<const Bytes*>(zeros), Words);
  return __builtin_convertvector(words, VecI);
}

// Returns the initial value of a row's sums over a group of `depth`, in every lane.
SLUICE_INLINE VecI BeginOf(const int32_t* begins, int64_t depth) {
  return (begins[depth / simd::kInt4Summed] - VecI{}) - begins[0];
}

// Sets the initial sums of R rows over a group. `begins` points to the first row's values.
template <int R, int C>
SLUICE_INLINE void BeginSums(const int32_t* begins, int64_t stride, int64_t depth,
                             VecI (&sum)[R][C]) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const VecI begin = BeginOf(begins + r * stride, depth);
#pragma GCC unroll 2
    for (int c = 0; c < C; ++c) sum[r][c] = begin;
  }
}

// Unpacks the codes of eight rows of a panel, and prefetches the codes kReadAhead bytes later.
template <typename Unit>
SLUICE_INLINE void UnpackAhead(const uint8_t* w, VecI (&column)[2][Unit::kSums]) {
#pragma GCC unroll 2
  for (int64_t at = 0; at < Unit::kPanelCols * int64_t{4}; at += kCacheLine) {
    __builtin_prefetch(w + kReadAhead + at);
  }
  Unit::Unpack(w, column[0], column[1]);
}

// Adds the products of 8 * `eights` values of R rows with a panel to `sum`, by way of words.
template <typename Unit, int R>
SLUICE_INLINE void SumByWords(RowsOf<Unit, R>& x, const uint8_t*& w, int64_t eights,
                              VecI (&sum)[R][Unit::kSums]) {
  constexpr int64_t kRowBytes = Unit::kPanelCols * int64_t{4};
  constexpr int64_t kEights = simd::kInt4Summed / 8;
  for (int64_t i = 0; i < eights; i += kEights) {
    typename Unit::Words words[R][Unit::kSums] = {};
#pragma GCC unroll 4
    for (int64_t each = 0; each < kEights; ++each, w += kRowBytes, x.Advance(2)) {
      VecI column[2][Unit::kSums];
      UnpackAhead<Unit>(w, column);
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          const VecI a = Unit::Spread(x.At(r, half));
#pragma GCC unroll 2
          for (int c = 0; c < Unit::kSums; ++c) {
            words[r][c] = Unit::AddCodes(a, column[half][c], words[r][c]);
          }
        }
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
      for (int c = 0; c < Unit::kSums; ++c) sum[r][c] = Unit::Fold(words[r][c], sum[r][c]);
    }
  }
}

// Adds the products of 8 * `eights` values of R rows with a panel to `sum`. With few rows, each
// half of the codes has separate sums, so that enough additions are in flight.
template <typename Unit, int R>
SLUICE_INLINE void SumGroup(RowsOf<Unit, R>& x, const uint8_t*& w, int64_t eights,
                            VecI (&sum)[R][kPanelVectors]) {
  constexpr int64_t kRowBytes = Unit::kPanelCols * int64_t{4};
  constexpr bool kApart = R <= 2;
  VecI second[R][kPanelVectors] = {};
  for (int64_t i = 0; i < eights; ++i, w += kRowBytes, x.Advance(2)) {
    VecI column[2][Unit::kSums];
    UnpackAhead<Unit>(w, column);
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const VecI a = Unit::Spread(x.At(r, half));
#pragma GCC unroll 2
        for (int c = 0; c < kPanelVectors; ++c) {
          VecI& to = kApart && half == 1 ? second[r][c] : sum[r][c];
          to = Unit::AddCodes(a, column[half][c], to);
        }
      }
    }
  }
  if constexpr (kApart) {
#pragma GCC unroll 2
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
      for (int c = 0; c < kPanelVectors; ++c) sum[r][c] += second[r][c];
    }
  }
}

// Adds the sums of R rows over a group, with its scales and zero points, to `total`. `begins` and
// `stride` are the same as for BeginSums.
template <typename Unit, int R>
SLUICE_INLINE void AddGroup(const VecI (&sum)[R][Unit::kSums], const int32_t* begins,
                            int64_t stride, int64_t depth, const float* scales,
                            const uint8_t* zeros, VecF (&total)[R][Unit::kTotals]) {
  VecF scale[Unit::kTotals];
#pragma GCC unroll 2
  for (int c = 0; c < Unit::kTotals; ++c) scale[c] = Load(scales + c * kLanes);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    VecI finished[Unit::kTotals];
    Unit::Finish(sum[r], finished);
#pragma GCC unroll 2
    for (int c = 0; c < Unit::kTotals; ++c) {
      if (zeros != nullptr) {
        // The initial sums are multiples of 8, or of 4 in each of two lanes.
        const VecI begin = BeginOf(begins + r * stride, depth) * Unit::kParts;
        finished[c] += (LoadZeros(zeros + c * kLanes) - 8) * begin >> 3;
      }
      total[r][c] = total[r][c] + __builtin_convertvector(finished[c], VecF) * scale[c];
    }
  }
}

// Scales the sums of a tile, and writes them.
template <int R, int C>
SLUICE_INLINE void WriteInt4Tile(const simd::Int4Block& block, int64_t row, int64_t col,
                                 VecF (&sum)[R][C]) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const VecF row_scale = Broadcast(block.row_scales[row + r]);
#pragma GCC unroll 2
    for (int c = 0; c < C; ++c) sum[r][c] = sum[r][c] * row_scale;
  }
  WriteTile(block, row, col, sum);
}

// Computes rows [row, row + R) with the panel of column `col`.
template <typename Unit, int R>
static void Int4Tile(const simd::Int4Block& block, int64_t row, int64_t col) {
  constexpr int kTotals = Unit::kTotals;
  const int64_t groups = (block.k + block.group - 1) / block.group;
  RowsOf<Unit, R> x(Unit::XOf(block) + row * Unit::Stride(block), Unit::Stride(block));
  const uint8_t* w = static_cast<const uint8_t*>(block.panels) + col * block.k / 2;
  const float* scales = block.scales + col * groups;
  const uint8_t* zeros = block.zeros == nullptr ? nullptr : block.zeros + col * groups;
  const int32_t* begins = block.begins + row * block.begins_stride;
  VecF total[R][kTotals] = {};
  for (int64_t left = block.k; left > 0; left -= block.group) {
    const int64_t depth = left < block.group ? left : block.group;
    VecI sum[R][Unit::kSums];
    BeginSums(begins, block.begins_stride, depth, sum);
    if constexpr (Unit::kInWords) {
      SumByWords<Unit, R>(x, w, depth / 8, sum);
    } else {
      SumGroup<Unit, R>(x, w, depth / 8, sum);
    }
#pragma GCC unroll 2
    for (int c = 0; c < kTotals; ++c) {
      __builtin_prefetch(scales + c * kLanes + kReadAhead / sizeof(VecF));
    }
    AddGroup<Unit, R>(sum, begins, block.begins_stride, depth, scales, zeros, total);
    begins += depth / simd::kInt4Summed;
    scales += Unit::kPanelCols;
    if (zeros != nullptr) zeros += Unit::kPanelCols;
  }
  WriteInt4Tile(block, row, col, total);
}

// Calls the tile function for `rows` in [1, R].
template <typename Unit, int R>
static void DispatchInt4Tile(const simd::Int4Block& block, int64_t row, int64_t rows, int64_t col) {
  if constexpr (R > 1) {
    if (rows < R) return DispatchInt4Tile<Unit, R - 1>(block, row, rows, col);
  }
  Int4Tile<Unit, R>(block, row, col);
}

// A part of a panel, unpacked for the products of many rows.
template <typename Unit>
struct ExpandedPanel {
  static constexpr int64_t kDepth = 1024;  // a multiple of every group
  alignas(kCacheLine) VecI columns[kDepth / 4][kPanelVectors];

  // Unpacks `depth` rows.
  void Fill(const uint8_t* codes, int64_t depth) {
    constexpr int64_t kRowBytes = Unit::kPanelCols * int64_t{4};
    for (int64_t step = 0; step < depth / 4; step += 2, codes += kRowBytes) {
      __builtin_prefetch(codes + 4 * kRowBytes);
      Unit::Unpack(codes, columns[step], columns[step + 1]);
    }
  }
};

// Adds products of R rows with `depth` rows of an unpacked panel to `totals`. `x`, `begins`,
// `scales` and `zeros` point to the first of these rows. Also prefetches its share of the codes
// that are unpacked next: `ahead.step` bytes for each row of the panel.
template <typename Unit, int R>
static void ExpandedTile(const simd::Int4Block& block, const ExpandedPanel<Unit>& panel,
                         const Ahead& ahead, int64_t depth, const typename Unit::X* x,
                         const int32_t* begins, const float* scales, const uint8_t* zeros,
                         VecF (*totals)[Unit::kTotals]) {
  RowsOf<Unit, R> rows(x, Unit::Stride(block));
  VecF total[R][Unit::kTotals];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int c = 0; c < Unit::kTotals; ++c) total[r][c] = totals[r][c];
  }
  int64_t step = 0;
  while (step < depth / 4) {
    const int64_t left = depth - step * 4, here = left < block.group ? left : block.group;
    for (int64_t i = 0; i < here * ahead.step; i += kCacheLine) {
      __builtin_prefetch(ahead.begin + step * 4 * ahead.step + i, 0, 2);
    }
    VecI sum[R][kPanelVectors];
    BeginSums(begins, block.begins_stride, here, sum);
    for (const int64_t end = step + here / 4; step < end; ++step, rows.Advance(1)) {
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const VecI a = Unit::Spread(rows.At(r, 0));
#pragma GCC unroll 2
        for (int c = 0; c < kPanelVectors; ++c) {
          sum[r][c] = Unit::AddCodes(a, panel.columns[step][c], sum[r][c]);
        }
      }
    }
    AddGroup<Unit, R>(sum, begins, block.begins_stride, here, scales, zeros, total);
    begins += here / simd::kInt4Summed;
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

// Computes rows [row, row + rows) with the panel of column `col`; `rows` is at most kManyAtOnce.
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
    panel.Fill(codes + done * kRowBytes, depth);
    const int64_t group = col * groups + done / block.group * Unit::kPanelCols;
    const int64_t share = (kRowBytes + tiles - 1) / tiles;
    for (int64_t t = 0; t < tiles; ++t) {  // tiles of nearly equal height
      const int64_t first = rows * t / tiles, end = rows * (t + 1) / tiles;
      const Ahead ahead = {
          reinterpret_cast<const char*>(codes + (done + depth) * kRowBytes) + t * share * depth,
          share};
      DispatchExpandedTile<Unit, Unit::kManyRows>(
          end - first, block, panel, ahead, depth,
          Unit::XOf(block) + (row + first) * Unit::Stride(block) + done / 4,
          block.begins + (row + first) * block.begins_stride + done / simd::kInt4Summed,
          block.scales + group, block.zeros == nullptr ? nullptr : block.zeros + group,
          totals + first);
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    VecF one[1][Unit::kTotals];
    for (int c = 0; c < Unit::kTotals; ++c) one[0][c] = totals[r][c];
    WriteInt4Tile(block, row + r, col, one);
  }
}

template <typename Unit>
static void Int4Gemm(const simd::Int4Block& block) {
  const int64_t panels = (block.cols + Unit::kPanelCols - 1) / Unit::kPanelCols;
  if constexpr (Unit::kShared) {
    if (block.rows > 2 * Unit::kRows) {
      const int64_t parts = (block.rows + kManyAtOnce - 1) / kManyAtOnce;
      for (int64_t p = 0; p < panels * parts; ++p) {
        const int64_t part = p % parts, row = block.rows * part / parts;
        Int4Many<Unit>(block, row, block.rows * (part + 1) / parts - row,
                       p / parts * Unit::kPanelCols);
      }
      return;
    }
  }
  const bool several = !Unit::kShared && block.rows > Unit::kRows;
  const int64_t most = several ? Unit::kManyRows : Unit::kRows;
  const int64_t tiles = (block.rows + most - 1) / most;
  for (int64_t p = 0; p < panels; ++p) {
    for (int64_t t = 0; t < tiles; ++t) {  // tiles of nearly equal height
      const int64_t row = block.rows * t / tiles, end = block.rows * (t + 1) / tiles;
      DispatchInt4Tile<Unit, Unit::kRows>(block, row, end - row, p * Unit::kPanelCols);
    }
  }
}

}  // namespace sluice::kernels::SLUICE_SIMD_NAMESPACE
