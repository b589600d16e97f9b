// GEMM over panels of bf16 pairs: the code that VDPBF16PS and AMX share. See vec.h for the rules.
//
// A block rounds its rows of x to bf16 once, into tiles of contiguous memory, and multiplies them
// by one panel after another. Sums are f32, one per element, over k ascending. If k is divided into
// parts, the sums are stored in memory between the parts, which changes no bit.
#pragma once

#include "kernels/cpu/simd/gemm.h"
#include "kernels/cpu/simd/pairs.h"

namespace sluice::kernels::SLUICE_SIMD_NAMESPACE {

static_assert(kPanelCols == simd::kPairsDepth);
inline constexpr int64_t kStep = simd::kPairsDepth;  // rows of a panel that tiles take at a time
inline constexpr int64_t kPanelStep = kStep * kPanelCols;

// Some rows of a block by some panels, over a part of k.
struct PairsTile {
  const simd::GemmBlock* block;
  const uint16_t* x;       // [steps, the unit's tile rows, kStep] of the first tile
  int64_t tile_stride;     // elements from one tile of x to the next
  const uint16_t* panels;  // [steps, kStep / 2, kPanelCols, 2] of the first panel
  int64_t panel_stride;    // elements
  int64_t steps;
  int64_t row, rows;
  int64_t col, count;  // count of panels
  float* carried;      // [rows, kPairsCols] sums at `row` and `col` between parts of k
  bool first, last;    // whether this is the first or last part of k
};

#ifndef __AVX512BF16__
// Rounds to bf16: to nearest, ties to even, denormals to zero; NaN becomes quiet.
SLUICE_INLINE uint16_t ToBF16(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  if ((bits & 0x7FFFFFFF) < 0x00800000) return static_cast<uint16_t>(bits >> 16 & 0x8000);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
#endif

// Rounds the first n <= kStep values of a row and fills up with zeros.
SLUICE_INLINE void RoundStep(const float* x, int64_t n, uint16_t* out) {
#ifdef __AVX512BF16__
  const __mmask16 low = n >= 16 ? 0xFFFF : static_cast<__mmask16>((1u << n) - 1);
  const __mmask16 high = n >= 32  ? 0xFFFF
                         : n > 16 ? static_cast<__mmask16>((1u << (n - 16)) - 1)
                                  : 0;
  const __m512bh rounded =
      _mm512_cvtne2ps_pbh(_mm512_maskz_loadu_ps(high, x + 16), _mm512_maskz_loadu_ps(low, x));
  __builtin_memcpy(out, &rounded, sizeof(rounded));
#else
  for (int64_t i = 0; i < kStep; ++i) out[i] = i < n ? ToBF16(x[i]) : 0;
#endif
}

// Rounds columns [begin, begin + depth) of the block's rows into [tiles, steps, tile_rows, kStep].
// The rest of the last tile stays unchanged, because rows do not influence each other.
SLUICE_INLINE void RoundRows(const simd::GemmBlock& block, int64_t begin, int64_t depth,
                             int64_t tile_rows, uint16_t* out) {
  const int64_t steps = (depth + kStep - 1) / kStep;
  for (int64_t row = 0; row < block.rows; ++row) {
    const float* x = block.x + row * block.ldx + begin;
    uint16_t* to = out + (row / tile_rows * steps * tile_rows + row % tile_rows) * kStep;
    int64_t done = 0;
    for (; done + kStep <= depth; done += kStep, to += tile_rows * kStep) {
      RoundStep(x + done, kStep, to);
    }
    if (done < depth) RoundStep(x + done, depth - done, to);
  }
}

// Computes a block. `Unit` has kTileRows, kRowsAtOnce (a multiple of kTileRows), PanelsAtOnce(rows)
// and Multiply(PairsTile).
template <typename Unit>
static void GemmOfPairs(const simd::GemmBlock& block) {
  alignas(kCacheLine) uint16_t x[simd::kPairsArea];
  alignas(kCacheLine) float carried[simd::kPairsFewRows * simd::kPairsCols];
  constexpr int64_t kRows = Unit::kTileRows;
  const int64_t tiles = (block.rows + kRows - 1) / kRows;
  const int64_t deepest = simd::kPairsArea / (tiles * kRows) / kStep * kStep;
  const int64_t panels = (block.cols + kPanelCols - 1) / kPanelCols;
  const int64_t panel = (block.k + kStep - 1) / kStep * kPanelStep;  // elements
  const int64_t at_once = Unit::PanelsAtOnce(block.rows);
  for (int64_t begin = 0; begin < block.k; begin += deepest) {
    const int64_t depth = block.k - begin < deepest ? block.k - begin : deepest;
    const int64_t steps = (depth + kStep - 1) / kStep;
    RoundRows(block, begin, depth, kRows, x);
    asm volatile("" : : "r"(x) : "memory");  // the compiler does not see the tile loads
    for (int64_t p = 0; p < panels; p += at_once) {
      for (int64_t row = 0; row < block.rows; row += Unit::kRowsAtOnce) {
        const int64_t rows = block.rows - row;
        Unit::Multiply(
            {.block = &block,
             .x = x + row * steps * kStep,
             .tile_stride = steps * kRows * kStep,
             .panels = static_cast<const uint16_t*>(block.panels) + p * panel + begin * kPanelCols,
             .panel_stride = panel,
             .steps = steps,
             .row = row,
             .rows = rows < Unit::kRowsAtOnce ? rows : Unit::kRowsAtOnce,
             .col = p * kPanelCols,
             .count = panels - p < at_once ? panels - p : at_once,
             .carried = carried + row * simd::kPairsCols + p * kPanelCols,
             .first = begin == 0,
             .last = begin + depth == block.k});
      }
    }
  }
}

}  // namespace sluice::kernels::SLUICE_SIMD_NAMESPACE
