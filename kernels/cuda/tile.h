// The multiplication in a projection's block: [kTileRows, kDepth] by [kDepth, kTileColumns] from
// shared memory, added to sums that the block's 128 threads hold. Device code only.
#pragma once

#include <cmath>

#include "kernels/cuda/bring.h"
#include "kernels/cuda/fragments.h"
#include "kernels/cuda/row_tiles.h"
#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {

inline constexpr int32_t kTileColumns = 64, kTileThreads = 128;

// Slices of x and of a weight matrix.
template <typename T>
struct Stage {
  static constexpr int32_t kDepth = 64 / sizeof(T);
  static constexpr int32_t kXStride = kDepth + kCopyElements<T>;
  static constexpr int32_t kWeightStride = kTileColumns + kCopyElements<T>;
  alignas(kCopyBytes) T x[kTileRows][kXStride];
  alignas(kCopyBytes) T weight[kDepth][kWeightStride];
};

// The sums of a tile. Warp w holds columns [16 w, 16 w + 16). Only sums of rows below `live` are
// defined.
template <typename T>
class Sums;

// Lane i holds column i % 16 of its warp's columns and every second row, from i / 16 on.
template <>
class Sums<float> {
 public:
  __device__ void Add(const Stage<float>& stage, int32_t live) {
    const int32_t column = Warp() * 16 + Lane() % 16, parity = Lane() / 16;
    for (int32_t k = 0; k < Stage<float>::kDepth; ++k) {
      const float weight = stage.weight[k][column];
      SLUICE_UNROLL
      for (int32_t i = 0; i < kRowsEach; ++i) {
        const int32_t row = 2 * i + parity;
        if (row < live) sums_[i] = fmaf(stage.x[row][k], weight, sums_[i]);
      }
    }
  }

  // Calls write(row, column, sum) for each element of this thread.
  template <typename Write>
  __device__ void ForEach(int32_t live, Write write) const {
    SLUICE_UNROLL
    for (int32_t i = 0; i < kRowsEach; ++i) {
      const int32_t row = 2 * i + Lane() / 16;
      if (row < live) write(row, Warp() * 16 + Lane() % 16, sums_[i]);
    }
  }

 private:
  static constexpr int32_t kRowsEach = kTileRows / 2;
  float sums_[kRowsEach] = {};
};

// Sums are held as fragments of MultiplyAdd: blocks of 16 rows by two blocks of 8 columns.
template <>
class Sums<BFloat16> {
 public:
  __device__ void Add(const Stage<BFloat16>& stage, int32_t live) {
    using Slices = Stage<BFloat16>;
    for (int32_t k = 0; k < Slices::kDepth; k += 16) {
      uint32_t b[kColumnBlocks][2];
      for (int32_t c = 0; c < kColumnBlocks; ++c) {
        LoadB(&stage.weight[k][Warp() * 16 + c * 8], Slices::kWeightStride, b[c]);
      }
      SLUICE_UNROLL
      for (int32_t r = 0; r < kRowBlocks; ++r) {
        if (r * 16 >= live) continue;
        uint32_t a[4];
        LoadA(&stage.x[r * 16][k], Slices::kXStride, a);
        for (int32_t c = 0; c < kColumnBlocks; ++c) MultiplyAdd(sums_[r][c], a, b[c]);
      }
    }
  }

  template <typename Write>
  __device__ void ForEach(int32_t live, Write write) const {
    SLUICE_UNROLL
    for (int32_t r = 0; r < kRowBlocks; ++r) {
      for (int32_t c = 0; c < kColumnBlocks; ++c) {
        for (int32_t i = 0; i < 4; ++i) {
          const int32_t row = r * 16 + Lane() / 4 + i / 2 * 8;
          const int32_t column = Warp() * 16 + c * 8 + Lane() % 4 * 2 + i % 2;
          if (row < live) write(row, column, sums_[r][c][i]);
        }
      }
    }
  }

 private:
  static constexpr int32_t kRowBlocks = kTileRows / 16, kColumnBlocks = 2;

  float sums_[kRowBlocks][kColumnBlocks][4] = {};
};

}  // namespace sluice::kernels::cuda
