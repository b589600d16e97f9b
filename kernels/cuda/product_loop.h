// The loop of a projection's block over k, which the kernels of kernels/cuda/projection.cu and
// score.cu share. Device code only.
#pragma once

#include "kernels/cuda/row_tiles.h"
#include "kernels/cuda/tile.h"
#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {

inline constexpr int32_t kProductStages = 4;

// The shared memory of a block; the sums of a tile reuse the memory of its slices.
template <typename T>
union ProductShared {
  Stage<T> stages[kProductStages];
  float sums[kTileRows][kTileColumns + 8];  // + 8: neighbouring rows begin in other banks
};

// The work that a block does at a time: the tile's rows by kTileColumns columns.
struct ProductWork {
  RowGroup tile;
  int32_t column;
};

template <typename T>
struct Operands {
  const T* x;       // [rows, k]
  const T* weight;  // [matrices, k, n]
  int32_t k;
  int32_t n;
};

// Copies the slices from depth `k` on to shared memory. Rows of x beyond the last block of 16 with
// a live row are left unchanged, because they are never read.
template <bool kAsync, typename T>
__device__ inline void BringStage(const Operands<T>& operands, const ProductWork& work, int32_t k,
                                  Stage<T>& stage) {
  constexpr int32_t kElements = kCopyElements<T>;
  constexpr int32_t kPerRow = Stage<T>::kDepth / kElements;
  const int32_t rows = (work.tile.count + 15) / 16 * 16;
  for (int32_t i = ThreadIndex(); i < rows * kPerRow; i += kTileThreads) {
    const int32_t row = i / kPerRow, column = i % kPerRow * kElements;
    const T* from = operands.x + int64_t{work.tile.first_row + row} * operands.k + k + column;
    Bring<T, kAsync>(&stage.x[row][column], from, operands.x,
                     row < work.tile.count ? operands.k - k - column : 0);
  }
  constexpr int32_t kPerDepth = kTileColumns / kElements;
  const T* matrix = operands.weight + int64_t{work.tile.position} * operands.k * operands.n;
  for (int32_t i = ThreadIndex(); i < Stage<T>::kDepth * kPerDepth; i += kTileThreads) {
    const int32_t depth = i / kPerDepth, column = i % kPerDepth * kElements;
    const T* from = matrix + int64_t{k + depth} * operands.n + work.column + column;
    Bring<T, kAsync>(&stage.weight[depth][column], from, operands.weight,
                     k + depth < operands.k ? operands.n - work.column - column : 0);
  }
}

// Adds the products of a tile to `sums`; each is one running sum over k ascending. Keeps
// kProductStages - 1 slices in flight while it multiplies one.
template <bool kAsync, typename T>
__device__ inline void MultiplyTile(const Operands<T>& operands, const ProductWork& work,
                                    ProductShared<T>& shared, Sums<T>& sums) {
  constexpr int32_t kDepth = Stage<T>::kDepth, kAhead = kProductStages - 1;
  const int32_t steps = (operands.k + kDepth - 1) / kDepth;
  for (int32_t step = 0; step < kAhead; ++step) {
    if (step < steps) BringStage<kAsync>(operands, work, step * kDepth, shared.stages[step]);
    CommitCopies();
  }
  for (int32_t step = 0; step < steps; ++step) {
    WaitCopies<kAhead - 1>();
    SyncBlock();  // this step's slices have arrived, and the previous ones are no longer read
    const int32_t next = step + kAhead;
    if (next < steps) {
      BringStage<kAsync>(operands, work, next * kDepth, shared.stages[next % kProductStages]);
    }
    CommitCopies();
    sums.Add(shared.stages[step % kProductStages], work.tile.count);
  }
}

// Puts the sums of a tile, instead of the slices, in shared memory.
template <typename T>
__device__ inline void ShareSums(const ProductWork& work, const Sums<T>& sums,
                                 ProductShared<T>& shared) {
  SyncBlock();  // the slices are no longer read
  sums.ForEach(work.tile.count,
               [&](int32_t row, int32_t column, float sum) { shared.sums[row][column] = sum; });
  SyncBlock();
}

}  // namespace sluice::kernels::cuda
