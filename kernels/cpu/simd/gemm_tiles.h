// Products of rows with packed panels, for all layouts of panels. See vec.h for the rules.
//
// A tile keeps R x P panels of running sums in registers while k ascends: x is broadcast, the
// panels are streamed. Every (R, P) does the same arithmetic per element, so a row's bits do not
// depend on the number of rows that are computed together.
//
// A `Unit` defines:
//   Block                    the argument of its kernel (rows, cols, k in elements, panels)
//   X, Element               an element of x, and of a panel
//   Column, Sum              a vector of panel elements, and of running sums
//   kPanelCols               columns, and elements, of a row of a panel; it has kPanelVectors sums
//   kTotals                  vectors of finished sums of a row of a panel
//   kAtOnce                  rows of a panel that a tile takes at a time, so that fewer
//                            instructions surround the products (measured to be best)
//   kOnePanel                whether one panel has enough sums even for few rows
//   XOf, Stride              the block's rows of x, and the elements between two
//   Widen, Spread, Add       loads a row of a panel; broadcasts an element of x; adds a product
//   Begin                    the initial sums of a panel
//   Complete                 the values of a row of a panel, before bias and accumulation
#pragma once

#include "kernels/cpu/simd/table.h"
#include "kernels/cpu/simd/vec.h"

namespace sluice::kernels::SLUICE_SIMD_NAMESPACE {

inline constexpr int kPanelVectors = 2;
#ifdef __aarch64__
inline constexpr int kTileRows = 12;
#else
inline constexpr int kTileRows = kLanes == 16 ? 12 : kLanes == 8 ? 6 : 4;
#endif

// Returns the number of panels that a tile of `rows` rows takes at once. It is several if one panel
// has too few sums to hide the latency of the products, and the sums, the panels' columns and an
// element of x fit 16 registers. Otherwise it is one, because memory is read fastest in one stream.
template <typename Unit>
inline constexpr int PanelsAtOnce(int64_t rows) {
  if (Unit::kOnePanel) return 1;
  if (rows == 1) return 4;
  return (rows + 1) * 2 * kPanelVectors + 1 <= 16 ? 2 : 1;
}

// The part of later tiles' data that a tile prefetches into the second-level cache. If only one
// tile reads its panel, it prefetches its own next data instead.
struct Ahead {
  const char* begin;
  int64_t step;  // bytes of the share for each row of the tile's own panel
};
inline constexpr int64_t kReadAhead = 8192;  // bytes; measured to be best

// R rows of x, addressed by a pointer for every three rows plus zero, one or two strides.
template <typename Unit, int R>
struct RowsOf {
  typedef typename Unit::X X;
  const X* third[(R + 2) / 3];
  int64_t stride;

  SLUICE_INLINE_MEMBER RowsOf(const X* x, int64_t ldx) : stride(ldx) {
#pragma GCC unroll 4
    for (int i = 0; i < (R + 2) / 3; ++i) third[i] = x + 3 * i * ldx;
  }
  SLUICE_INLINE_MEMBER const X& At(int row, int column) const {
    return third[row / 3][row % 3 * stride + column];
  }
  SLUICE_INLINE_MEMBER void Advance(int64_t columns) {
#pragma GCC unroll 4
    for (const X*& rows : third) rows += columns;
    KeepAsItIs();
  }
  // Stops the compiler from computing the address of each element before a loop; the registers
  // cannot hold them all.
  SLUICE_INLINE_MEMBER void KeepAsItIs() {
#pragma GCC unroll 4
    for (const X*& rows : third) asm("" : "+r"(rows));
    asm("" : "+r"(stride));
  }
};

// Adds column `i` of x times a row of P panels, of `panel` elements each, to `sum`.
template <typename Unit, int R, int P>
SLUICE_INLINE void AddProducts(const RowsOf<Unit, R>& x, int i, const typename Unit::Element* w,
                               int64_t panel, typename Unit::Sum (&sum)[R][P * kPanelVectors]) {
  typename Unit::Column column[P * kPanelVectors];
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p) Unit::Widen(w + p * panel, column + p * kPanelVectors);
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r) {
    const typename Unit::Column a = Unit::Spread(x.At(r, i));
#pragma GCC unroll 8
    for (int c = 0; c < P * kPanelVectors; ++c) sum[r][c] = Unit::Add(a, column[c], sum[r][c]);
  }
}

// Completes values [rows, width] with the block's bias and accumulation, and writes the values in
// its columns.
template <typename Block>
__attribute__((noinline)) static void WriteRows(const Block& block, int64_t row, int64_t rows,
                                                int64_t col, int64_t width, const float* values) {
  const int64_t cols = block.cols - col < width ? block.cols - col : width;
  const float* const bias = block.bias == nullptr ? nullptr : block.bias + col;
  for (int64_t r = 0; r < rows; ++r) {
    float* const out = block.out + (row + r) * block.ldo + col;
    for (int64_t c = 0; c < cols; c += kLanes) {
      const int64_t n = cols - c;
      VecF y = Load(values + r * width + c);
      if (bias != nullptr) y = y + LoadUpTo(bias + c, n);
      if (block.accumulate) y = LoadUpTo(out + c, n) + y;
      StoreUpTo(out + c, y, n);
    }
  }
}

// Whether a block of this type may keep channels in f32.
template <typename Block>
concept MayKeepChannels = requires(const Block& block) {
  block.kept;
};

// Adds the products of the block's kept channels to values [rows, width], one after another.
template <MayKeepChannels Block>
__attribute__((noinline)) static void AddKept(const Block& block, int64_t row, int64_t rows,
                                              int64_t col, int64_t width, float* values) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* const x = block.kept.x + (row + r) * block.kept.ldx;
    for (int64_t c = 0; c < width; c += kLanes) {
      VecF y = Load(values + r * width + c);
      for (int64_t i = 0; i < block.kept.count; ++i) {
        y = y + Broadcast(x[block.kept.channels[i]]) *
                    Load(block.kept.weights + i * block.kept.ldw + col + c);
      }
      Store(values + r * width + c, y);
    }
  }
}

// Completes the values of a tile of C vectors a row and writes them. Writes directly from registers
// if all columns belong to the block and it keeps no channels.
template <int R, int C, typename Block>
SLUICE_INLINE void WriteTile(const Block& block, int64_t row, int64_t col, VecF (&y)[R][C]) {
  bool as_it_is = block.cols - col >= C * kLanes;
  if constexpr (MayKeepChannels<Block>) as_it_is = as_it_is && block.kept.count == 0;
  if (!as_it_is) {
    float values[R][C * kLanes];  // a copy, so that `y` needs no address
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) Store(&values[r][c * kLanes], y[r][c]);
    }
    if constexpr (MayKeepChannels<Block>) AddKept(block, row, R, col, C * kLanes, values[0]);
    return WriteRows(block, row, R, col, C * kLanes, values[0]);
  }
  float* const out = block.out + row * block.ldo + col;
  if (block.bias != nullptr) {
    VecF bias[C];
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) bias[c] = Load(block.bias + col + c * kLanes);
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) y[r][c] = y[r][c] + bias[c];
    }
  }
  if (block.accumulate) {
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) y[r][c] = Load(out + r * block.ldo + c * kLanes) + y[r][c];
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) Store(out + r * block.ldo + c * kLanes, y[r][c]);
  }
}

// Computes rows [row, row + R) with P panels from column `col` on. With kAlone no other rows of the
// block use these panels; this is a template parameter because a branch in the loop would cost
// registers.
template <typename Unit, int R, int P, bool kAlone>
static void Tile(const typename Unit::Block& block, const Ahead& ahead, int64_t row, int64_t col) {
  constexpr int kPanelCols = Unit::kPanelCols;
  constexpr int64_t kRowBytes = kPanelCols * sizeof(typename Unit::Element);
  constexpr int64_t kAhead = 2048 / sizeof(typename Unit::Element);
  constexpr int kRows = P == 4 ? 1 : Unit::kAtOnce;  // four panels are instructions enough
  const int64_t k = block.k, panel = k * kPanelCols;
  RowsOf<Unit, R> x(Unit::XOf(block) + row * Unit::Stride(block), Unit::Stride(block));
  const auto* w = static_cast<const typename Unit::Element*>(block.panels) + col * k;
  const char* next = ahead.begin;
  typename Unit::Sum sum[R][P * kPanelVectors];
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p) {
    typename Unit::Sum begin[kPanelVectors];
    Unit::Begin(block, col + p * kPanelCols, begin);
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
      for (int c = 0; c < kPanelVectors; ++c) sum[r][p * kPanelVectors + c] = begin[c];
    }
  }
  int64_t i = 0;
  for (; i + kRows <= k; i += kRows, w += kRows * kPanelCols) {
#pragma GCC unroll 8
    for (int u = 0; u < kRows; ++u) {
      const typename Unit::Element* row_of_panel = w + u * kPanelCols;
      if constexpr (P == 1) {
        if constexpr (kAlone) {
          const char* const later = reinterpret_cast<const char*>(row_of_panel) + kReadAhead;
          __builtin_prefetch(later);
          if constexpr (kRowBytes > kCacheLine) __builtin_prefetch(later + kCacheLine);
        } else if (u * kRowBytes % kCacheLine == 0) {
          __builtin_prefetch(next + u * ahead.step, 0, 2);
        }
      } else {
        // Limited by memory. Hardware prefetchers stop at page boundaries, and panels cross many of
        // these.
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) __builtin_prefetch(row_of_panel + p * panel + kAhead);
      }
      AddProducts<Unit, R, P>(x, u, row_of_panel, panel, sum);
    }
    next += kRows * ahead.step;
    x.Advance(kRows);
  }
  for (; i < k; ++i, w += kPanelCols, x.Advance(1)) AddProducts<Unit, R, P>(x, 0, w, panel, sum);
  constexpr int kTotals = Unit::kTotals;
  VecF y[R][P * kTotals];
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      Unit::Complete(block, row + r, col + p * kPanelCols, &sum[r][p * kPanelVectors],
                     &y[r][p * kTotals]);
    }
  }
  WriteTile(block, row, col, y);
}

// Calls the tile function for `rows` in [1, R], or without kAlone in [kTileRows / 2, R].
template <typename Unit, int R, bool kAlone>
static void DispatchTile(const typename Unit::Block& block, const Ahead& ahead, int64_t row,
                         int64_t rows, int panels, int64_t col) {
  if (rows < R) {
    if constexpr (R > (kAlone ? 1 : kTileRows / 2)) {
      DispatchTile<Unit, R - 1, kAlone>(block, ahead, row, rows, panels, col);
    }
  } else if (kAlone && panels == PanelsAtOnce<Unit>(R)) {
    Tile<Unit, R, PanelsAtOnce<Unit>(R), true>(block, ahead, row, col);
  } else {
    for (int p = 0; p < panels; ++p) {
      Tile<Unit, R, 1, kAlone>(block, ahead, row, col + p * Unit::kPanelCols);
    }
  }
}

// Computes a block. If several tiles use a panel, each of them prefetches its share of the next
// panel. The prefetches after the last panel are useless and harmless.
template <typename Unit>
static void Gemm(const typename Unit::Block& block) {
  constexpr int64_t kRowBytes = Unit::kPanelCols * sizeof(typename Unit::Element);
  const int64_t tiles = (block.rows + kTileRows - 1) / kTileRows;
  const int64_t panels = (block.cols + Unit::kPanelCols - 1) / Unit::kPanelCols;
  const int64_t step = block.rows < kTileRows ? PanelsAtOnce<Unit>(block.rows) : 1;
  const char* following = static_cast<const char*>(block.panels);
  for (int64_t p = 0; p < panels; p += step) {
    const int count = static_cast<int>(panels - p < step ? panels - p : step);
    const int64_t row_bytes = count * kRowBytes;
    following += row_bytes * block.k;
    const int64_t col = p * Unit::kPanelCols;
    if (tiles == 1) {
      DispatchTile<Unit, kTileRows, true>(block, {}, 0, block.rows, count, col);
      continue;
    }
    for (int64_t t = 0; t < tiles; ++t) {  // tiles of nearly equal height
      const int64_t row = block.rows * t / tiles, end = block.rows * (t + 1) / tiles;
      const Ahead ahead = {following + row_bytes * block.k * t / tiles, row_bytes / tiles};
      DispatchTile<Unit, kTileRows, false>(block, ahead, row, end - row, count, col);
    }
  }
}

}  // namespace sluice::kernels::SLUICE_SIMD_NAMESPACE
