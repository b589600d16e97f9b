// The GEMM over bf16 pairs by AMX. Two tiles of x and the two halves of a panel keep four tiles of
// sums. The speed of a single row is limited by memory, and tiles would make it slower. So it is
// multiplied by FMA in vectors, with the known arithmetic of TDPBF16PS, bit for bit.
#define SLUICE_SIMD_LANES 16
#define SLUICE_SIMD_NAMESPACE simd_amx
#include "kernels/cpu/simd/amx_config.h"
#include "kernels/cpu/simd/gemm_pairs.h"

namespace sluice::kernels::SLUICE_SIMD_NAMESPACE {

// Treats denormal inputs and results as 0, from its construction until End.
class DenormalsAreZero {
 public:
  DenormalsAreZero() : before_(_mm_getcsr()) { Set(before_ | 0x8040, nullptr); }
  // `stored` is the memory that was written before; the compiler must not move these computations
  // after the call.
  void End(const float* stored) const { Set(before_, stored); }

 private:
  static void Set(uint32_t control, const float* stored) {
    asm volatile("ldmxcsr %0" : : "m"(control), "r"(stored) : "memory");
  }
  uint32_t before_;
};

struct Tiles {
  static constexpr int64_t kTileRows = 16;
  static constexpr int64_t kRowsAtOnce = 2 * kTileRows;
  // The speed of a single row is limited by memory, which is read faster in several streams.
  static constexpr int64_t kPanelsOfRow = 4;
  static int64_t PanelsAtOnce(int64_t rows) { return rows == 1 ? kPanelsOfRow : 1; }

  static void Multiply(const PairsTile& tile) {
    if (tile.rows == 1) return RunRow(tile);
    tile.rows > kTileRows ? Run<true>(tile) : Run<false>(tile);
  }

 private:
  static constexpr int64_t kHalf = kPanelCols / 2;
  static constexpr int64_t kBytes = sizeof(uint16_t);

  static void RunRow(const PairsTile& tile) {
    int64_t p = 0;
    for (; p + kPanelsOfRow <= tile.count; p += kPanelsOfRow) RunRow<kPanelsOfRow>(tile, p);
    for (; p < tile.count; ++p) RunRow<1>(tile, p);
  }

  // Multiplies one row by P panels from panel `p` on, with the arithmetic of TDPBF16PS: in each
  // step the even and the odd products of the pairs are summed separately, from 0 on and fused, and
  // then their sum is added; denormals count as 0 everywhere. On Sapphire Rapids the results equal
  // the instruction's results bit for bit for random tiles.
  template <int P>
  static void RunRow(const PairsTile& tile, int64_t p) {
    constexpr int kVectors = P * kPanelVectors;
    constexpr int64_t kAhead = 1024;  // elements
    alignas(kCacheLine) float sums[P * kPanelCols];
    float* const carried = tile.carried + p * kPanelCols;
    float* const to = tile.last ? sums : carried;
    VecF sum[kVectors] = {};
    if (!tile.first) {
      for (int v = 0; v < kVectors; ++v) sum[v] = Load(carried + v * kLanes);
    }
    const DenormalsAreZero zero;
    const uint16_t* x = tile.x;
    const uint16_t* w = tile.panels + p * tile.panel_stride;
    for (int64_t step = 0; step < tile.steps; ++step, x += kTileRows * kStep) {
      VecF even[kVectors] = {}, odd[kVectors] = {};
#pragma GCC unroll 4
      for (int64_t pair = 0; pair < kStep; pair += 2, w += 2 * kPanelCols) {
        int32_t both;
        __builtin_memcpy(&both, x + pair, sizeof(both));
        const VecF x_even = reinterpret_cast<VecF>((both << 16) - VecI{});
        const VecF x_odd = reinterpret_cast<VecF>((both & -65536) - VecI{});
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) {
          const uint16_t* const words =
              w + v / kPanelVectors * tile.panel_stride + v % kPanelVectors * 2 * kLanes;
          const VecI column = LoadInts(words);
          __builtin_prefetch(words + kAhead);
          even[v] = Fma(x_even, reinterpret_cast<VecF>(column << 16), even[v]);
          odd[v] = Fma(x_odd, reinterpret_cast<VecF>(column & -65536), odd[v]);
        }
      }
      for (int v = 0; v < kVectors; ++v) sum[v] += even[v] + odd[v];
    }
    for (int v = 0; v < kVectors; ++v) Store(to + v * kLanes, sum[v]);
    zero.End(to);
    if (tile.last) {
      WriteRows(*tile.block, tile.row, 1, tile.col + p * kPanelCols, P * kPanelCols, sums);
    }
  }

  // Multiplies 32 rows (Two) or 16 rows by a panel.
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
    WriteRows(*tile.block, tile.row, tile.rows, tile.col, kPanelCols, sums);
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
    asm volatile("" : : "r"(to) : "memory");  // the compiler does not see the tile stores
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
