// GEMM over packed panels. Included by table.inc; see vec.h for the rules.
//
// A tile keeps R x P panels of running sums in registers while k ascends: x is broadcast, the
// panels stream. Every (R, P) does the same arithmetic per element, so a row's bits do not depend
// on how many rows it is computed with.
#pragma once

#include "kernels/cpu/simd/table.h"
#include "kernels/cpu/simd/vec.h"

namespace sluice::kernels::SLUICE_SIMD_NAMESPACE {

inline constexpr int kPanelVectors = 2;
inline constexpr int kPanelCols = kPanelVectors * kLanes;
inline constexpr int kTileRows = kLanes == 16 ? 12 : kLanes == 8 ? 6 : 4;

// Returns the number of panels that a tile of `rows` rows takes at once. With few rows, several
// panels keep enough sums in flight to hide the latency of the FMA, as long as the sums, the
// panels' columns and an element of x fit the registers.
inline constexpr int PanelsAtOnce(int64_t rows) {
  constexpr int kRegisters = kLanes == 16 ? 32 : 16;
  if (rows == 1) return 4;
  return (rows + 1) * 2 * kPanelVectors + 1 <= kRegisters ? 2 : 1;
}

// Rows of f32 panels. Tiles take kAtOnce rows at a time, so that fewer instructions surround the
// products; the number was measured to be best.
struct F32Row {
  typedef float Element;
  static constexpr int kAtOnce = SLUICE_SIMD_UNROLL(2);
  SLUICE_INLINE void Widen(const float* row, VecF* columns) {
    for (int c = 0; c < kPanelVectors; ++c) columns[c] = Load(row + c * kLanes);
  }
};

// Rows of bf16 panels. A bf16 is the upper half of an f32, and the two columns that belong to the
// same lane of two vectors share a word, so that one load, a shift and a mask give both vectors
// exactly and no lane moves.
struct BF16Row {
  typedef uint16_t Element;
  static constexpr int kAtOnce = SLUICE_SIMD_UNROLL(8);
  SLUICE_INLINE void Widen(const uint16_t* row, VecF* columns) {
    static_assert(kPanelVectors == 2);
    const VecI pairs = LoadInts(row);
    columns[0] = reinterpret_cast<VecF>(pairs << 16);
    columns[1] = reinterpret_cast<VecF>(pairs & -65536);
  }
};

// The memory that a tile prefetches into the second-level cache for the tiles after it.
struct Ahead {
  const char* begin;
  int64_t step;  // bytes to prefetch for each row of the tile's own panel
};

SLUICE_INLINE VecF LoadUpTo(const float* p, int64_t n) {
  return n >= kLanes ? Load(p) : LoadPartial(p, n, 0.0f);
}

SLUICE_INLINE void StoreUpTo(float* p, VecF v, int64_t n) {
  if (n >= kLanes) {
    Store(p, v);
  } else {
    StorePartial(p, v, n);
  }
}

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

// R rows of x, addressed by a pointer for every three rows plus zero, one or two strides.
template <int R>
struct RowsOf {
  const float* third[(R + 2) / 3];
  int64_t stride;

  SLUICE_INLINE_MEMBER RowsOf(const float* x, int64_t ldx) : stride(ldx) {
#pragma GCC unroll 4
    for (int i = 0; i < (R + 2) / 3; ++i) third[i] = x + 3 * i * ldx;
  }
  SLUICE_INLINE_MEMBER const float& At(int row, int column) const {
    return third[row / 3][row % 3 * stride + column];
  }
  SLUICE_INLINE_MEMBER void Advance(int64_t columns) {
#pragma GCC unroll 4
    for (const float*& rows : third) rows += columns;
    KeepAsItIs();
  }
  // Keeps the compiler from computing the address of each element before a loop; the registers
  // cannot hold them all.
  SLUICE_INLINE_MEMBER void KeepAsItIs() {
#pragma GCC unroll 4
    for (const float*& rows : third) asm("" : "+r"(rows));
    asm("" : "+r"(stride));
  }
};

// Adds column `i` of x times a row of P panels, of `panel` elements each, to `sum`.
template <typename Row, int R, int P>
SLUICE_INLINE void AddProducts(const RowsOf<R>& x, int i, const typename Row::Element* w,
                               int64_t panel, VecF (&sum)[R][P * kPanelVectors]) {
  VecF column[P * kPanelVectors];
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p) Row::Widen(w + p * panel, column + p * kPanelVectors);
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r) {
    const VecF a = Broadcast(x.At(r, i));
#pragma GCC unroll 8
    for (int c = 0; c < P * kPanelVectors; ++c) sum[r][c] = Fma(a, column[c], sum[r][c]);
  }
}

// Computes rows [row, row + R) by P panels from column `col` on.
template <typename Row, int R, int P>
static void Tile(const simd::GemmBlock& block, const Ahead& ahead, int64_t row, int64_t col) {
  constexpr int64_t kRowBytes = kPanelCols * sizeof(typename Row::Element);
  constexpr int64_t kAhead = 2048 / sizeof(typename Row::Element);
  constexpr int kRows = R == 1 ? 1 : Row::kAtOnce;  // a single row is bound by memory anyway
  const int64_t k = block.k, panel = k * kPanelCols;
  RowsOf<R> x(block.x + row * block.ldx, block.ldx);
  const auto* w = static_cast<const typename Row::Element*>(block.panels) + col * k;
  const char* next = ahead.begin;
  VecF sum[R][P * kPanelVectors] = {};
  int64_t i = 0;
  for (; i + kRows <= k; i += kRows, w += kRows * kPanelCols) {
#pragma GCC unroll 8
    for (int u = 0; u < kRows; ++u) {
      const typename Row::Element* row_of_panel = w + u * kPanelCols;
      if constexpr (P == 1) {
        if (u * kRowBytes % kCacheLine == 0) __builtin_prefetch(next + u * ahead.step, 0, 2);
      } else {
        // Bound by memory. Hardware prefetchers stop at page boundaries, which panels cross all the
        // time.
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) __builtin_prefetch(row_of_panel + p * panel + kAhead);
      }
      AddProducts<Row, R, P>(x, u, row_of_panel, panel, sum);
    }
    next += kRows * ahead.step;
    x.Advance(kRows);
  }
  for (; i < k; ++i, w += kPanelCols, x.Advance(1)) AddProducts<Row, R, P>(x, 0, w, panel, sum);
  float sums[R][P * kPanelCols];
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < P * kPanelVectors; ++c) Store(sums[r] + c * kLanes, sum[r][c]);
  }
  WriteTile(block, row, R, col, P * kPanelCols, sums[0]);
}

// Calls the tile function for `rows` in [1, R].
template <typename Row, int R>
static void DispatchTile(const simd::GemmBlock& block, const Ahead& ahead, int64_t row,
                         int64_t rows, int panels, int64_t col) {
  if (rows < R) {
    if constexpr (R > 1) DispatchTile<Row, R - 1>(block, ahead, row, rows, panels, col);
  } else if (panels == PanelsAtOnce(R)) {
    Tile<Row, R, PanelsAtOnce(R)>(block, ahead, row, col);
  } else {
    for (int p = 0; p < panels; ++p) Tile<Row, R, 1>(block, ahead, row, col + p * kPanelCols);
  }
}

// Computes a block. While the tiles of a panel are computed, each prefetches its share of the next
// panel, so that its beginning need not wait for memory. The prefetches behind the last panel are
// useless and harmless.
template <typename Row>
static void Gemm(const simd::GemmBlock& block) {
  constexpr int64_t kRowBytes = kPanelCols * sizeof(typename Row::Element);
  const int64_t tiles = (block.rows + kTileRows - 1) / kTileRows;
  const int64_t panels = (block.cols + kPanelCols - 1) / kPanelCols;
  const int64_t step = block.rows < kTileRows ? PanelsAtOnce(block.rows) : 1;
  const char* following = static_cast<const char*>(block.panels);
  for (int64_t p = 0; p < panels; p += step) {
    const int count = static_cast<int>(panels - p < step ? panels - p : step);
    const int64_t row_bytes = count * kRowBytes;
    following += row_bytes * block.k;
    for (int64_t t = 0; t < tiles; ++t) {  // tiles of nearly equal heights
      const int64_t row = block.rows * t / tiles, end = block.rows * (t + 1) / tiles;
      const Ahead ahead = {following + row_bytes * block.k * t / tiles, row_bytes / tiles};
      DispatchTile<Row, kTileRows>(block, ahead, row, end - row, count, p * kPanelCols);
    }
  }
}

}  // namespace sluice::kernels::SLUICE_SIMD_NAMESPACE
