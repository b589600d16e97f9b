// The multiplication in a product's block: slices of x and of packed weights in shared memory are
// multiplied and added to sums that the block's threads hold. Device code only.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/bring.h"
#include "kernels/cuda/packed.h"
#include "kernels/cuda/row_tiles.h"
#include "kernels/cuda/vector.h"
#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {

// The size of a block's tile, and the number of its slices in shared memory. Its warps share the
// rows and columns: kDown by kAcross warps, each with 32 columns.
struct SmallTile {
  static constexpr int32_t kRows = kTileRows, kColumns = kPanelColumns;
  static constexpr int32_t kDown = 2, kAcross = 2, kThreads = 128, kStages = 6;
};
// For many rows of one matrix: two row tiles by two panels, so that less is copied.
struct LargeTile {
  static constexpr int32_t kRows = 2 * kTileRows, kColumns = 2 * kPanelColumns;
  static constexpr int32_t kDown = 2, kAcross = 4, kThreads = 256, kStages = 3;
};

// Returns the place in shared memory of chunk `chunk` (16 bytes) of the 8 chunks of a row of x. In
// rows that are read together, the same chunk is in different banks.
__device__ inline int32_t ChunkPlace(int32_t row, int32_t chunk) {
  return chunk ^ (row % 2 * 4 + row / 2 % 4);
}

template <typename T, typename Tile>
struct Stage {
  alignas(kCopyBytes) T x[Tile::kRows][kSliceDepth<T>];
  alignas(kCopyBytes) T weight[Tile::kColumns / kPanelColumns][kSliceElements<T>];
};

// The type of sums of products of T. Sums of int8 products are exact.
template <typename T>
using SumOf = std::conditional_t<std::is_same_v<T, int8_t>, int32_t, float>;

// Sums of a tile, in blocks of 8 rows by 16 columns. They are distributed like the results of
// MultiplyAdd, but with rows and columns exchanged, because a block has few rows of x and the
// product of 16 by 8 has fewer columns than rows. A lane holds two rows and two columns of a block.
// Only sums of rows below `live` are defined.
template <typename T, typename Tile>
class Sums {
 public:
  using Sum = SumOf<T>;
  static constexpr int32_t kRowBlocks = Tile::kRows / Tile::kDown / 8;
  static constexpr int32_t kColumnBlocks = Tile::kColumns / Tile::kAcross / 16;
  static_assert(Tile::kDown * Tile::kAcross * kWarp == Tile::kThreads);

  // The first row and column of the warp in its tile.
  static __device__ int32_t FirstRow() { return Warp() / Tile::kAcross * kRowBlocks * 8; }
  static __device__ int32_t FirstColumn() { return Warp() % Tile::kAcross * kColumnBlocks * 16; }

  // Row `i` of the lane's two rows in block `r`, and the first of its two columns in block `c`.
  static __device__ int32_t Row(int32_t r, int32_t i) {
    return FirstRow() + r * 8 + Lane() % 4 * 2 + i;
  }
  static __device__ int32_t Column(int32_t c) { return FirstColumn() + c * 16 + Lane() / 4 * 2; }
  // Returns the sums of a row and two columns. The arguments are compile-time constants.
  __device__ Floats<2> At(int32_t r, int32_t i, int32_t c) const {
    return {{static_cast<float>(at_[r][c][i]), static_cast<float>(at_[r][c][i + 2])}};
  }

  __device__ void Clear() {
    ForEachBlock([](Sum(&d)[4], int32_t, int32_t) {
      for (Sum& sum : d) sum = 0;
    });
  }

  // Adds the products of a slice by ascending k.
  __device__ void AddProducts(const Stage<T, Tile>& stage, int32_t live) {
    if (FirstRow() >= live) return;
    if constexpr (std::is_same_v<T, float>) {
      AddOneByOne(stage, live);
    } else {
      AddByMatrices(stage, live);
    }
  }

 private:
  struct alignas(kCopyBytes) Words {
    uint32_t at[4];
  };

  // Adds the products of a slice in steps of 32 bytes of k, ascending.
  __device__ void AddByMatrices(const Stage<T, Tile>& stage, int32_t live) {
    constexpr int32_t kPer = sizeof(BFloat16) / sizeof(T);
    const int32_t g = Lane() / 4, t = Lane() % 4;
    const T* const weight = stage.weight[FirstColumn() / kPanelColumns] +
                            PlaceInSlice(T(), t * 2 * kPer, FirstColumn() % kPanelColumns + g * 2);
    SLUICE_UNROLL
    for (int32_t half = 0; half < 2; ++half) {
      Words a[2][kColumnBlocks];
      SLUICE_UNROLL
      for (int32_t step = 0; step < 2; ++step) {
        SLUICE_UNROLL
        for (int32_t c = 0; c < kColumnBlocks; ++c) {
          a[step][c] =
              LoadWhole<Words>(weight + PlaceInSlice(T(), (half * 32 + step * 16) * kPer, c * 16));
        }
      }
      // Lane l passes the address of row l % 8 of chunk l / 8.
      const int32_t chunk = ChunkPlace(Lane() % 8, half * 4 + Lane() / 8);
      const T* const x = &stage.x[FirstRow() + Lane() % 8][chunk * kCopyElements<T>];
      SLUICE_UNROLL
      for (int32_t r = 0; r < kRowBlocks; ++r) {
        if (FirstRow() + r * 8 >= live) continue;
        uint32_t b[4];
        LoadMatrices<false>(x + r * 8 * kSliceDepth<T>, b);
        SLUICE_UNROLL
        for (int32_t step = 0; step < 2; ++step) {
          const uint32_t pair[2] = {b[2 * step], b[2 * step + 1]};
          SLUICE_UNROLL
          for (int32_t c = 0; c < kColumnBlocks; ++c) MultiplyAdd(at_[r][c], a[step][c].at, pair);
        }
      }
    }
  }

  // Adds the products of a slice one after another by ascending k.
  __device__ void AddOneByOne(const Stage<T, Tile>& stage, int32_t live) {
    SLUICE_ROLLED
    for (int32_t chunk = 0; chunk < kSliceDepth<float> / 4; ++chunk) {
      Floats<4> x[kRowBlocks][2] = {};
      SLUICE_UNROLL
      for (int32_t r = 0; r < kRowBlocks; ++r) {
        if (FirstRow() + r * 8 >= live) continue;
        SLUICE_UNROLL
        for (int32_t i = 0; i < 2; ++i) {
          x[r][i] = Load<4>(&stage.x[Row(r, i)][ChunkPlace(Row(r, i), chunk) * 4]);
        }
      }
      SLUICE_UNROLL
      for (int32_t k = 0; k < 4; ++k) {
        SLUICE_UNROLL
        for (int32_t c = 0; c < kColumnBlocks; ++c) {
          const Floats<2> weight = Load<2>(&stage.weight[Column(c) / kPanelColumns][PlaceInSlice(
              0.0f, chunk * 4 + k, Column(c) % kPanelColumns)]);
          SLUICE_UNROLL
          for (int32_t r = 0; r < kRowBlocks; ++r) {
            if (FirstRow() + r * 8 >= live) continue;
            SLUICE_UNROLL
            for (int32_t j = 0; j < 4; ++j) {
              at_[r][c][j] = fmaf(x[r][j % 2].at[k], weight.at[j / 2], at_[r][c][j]);
            }
          }
        }
      }
    }
  }

  template <typename Function>
  __device__ void ForEachBlock(Function f) {
    SLUICE_UNROLL
    for (int32_t r = 0; r < kRowBlocks; ++r) {
      SLUICE_UNROLL
      for (int32_t c = 0; c < kColumnBlocks; ++c) f(at_[r][c], r, c);
    }
  }

  Sum at_[kRowBlocks][kColumnBlocks][4];
};

}  // namespace sluice::kernels::cuda
