#include "kernels/cuda/projection.h"

#include <cmath>

#include "base/check.h"
#include "kernels/cuda/activation_math.h"
#include "kernels/cuda/tile.h"
#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int32_t kStages = 4;

// The shared memory of a block; the sums of a tile reuse the memory of its slices.
template <typename T>
union ProjectionShared {
  Stage<T> stages[kStages];
  float sums[kTileRows][kTileColumns + 8];  // + 8: neighbouring rows begin in other banks
};

// The work that a block does at a time: the tile's rows by kTileColumns columns.
struct Work {
  RowGroup tile;
  int32_t column;
};

// Copies the slices from depth `k` on to shared memory. Rows of x beyond the last block of 16 with
// a live row are left unchanged, because they are never read.
template <typename T, typename Out, bool kAsync>
__device__ void BringStage(const ProjectionArgs<T, Out>& args, const Work& work, int32_t k,
                           Stage<T>& stage) {
  constexpr int32_t kElements = kCopyElements<T>;
  constexpr int32_t kPerRow = Stage<T>::kDepth / kElements;
  const int32_t rows = (work.tile.count + 15) / 16 * 16;
  for (int32_t i = ThreadIndex(); i < rows * kPerRow; i += kTileThreads) {
    const int32_t row = i / kPerRow, column = i % kPerRow * kElements;
    const T* from = args.x + int64_t{work.tile.first_row + row} * args.k + k + column;
    Bring<T, kAsync>(&stage.x[row][column], from, args.x,
                     row < work.tile.count ? args.k - k - column : 0);
  }
  constexpr int32_t kPerDepth = kTileColumns / kElements;
  const T* matrix = args.weight + int64_t{work.tile.position} * args.k * args.n;
  for (int32_t i = ThreadIndex(); i < Stage<T>::kDepth * kPerDepth; i += kTileThreads) {
    const int32_t depth = i / kPerDepth, column = i % kPerDepth * kElements;
    const T* from = matrix + int64_t{k + depth} * args.n + work.column + column;
    Bring<T, kAsync>(&stage.weight[depth][column], from, args.weight,
                     k + depth < args.k ? args.n - work.column - column : 0);
  }
}

// Calls write(element, value) for the element at this row and column of the tile, if there is one;
// `value` is before any activation.
template <typename T, typename Out, typename Write>
__device__ void Finish(const ProjectionArgs<T, Out>& args, const Work& work, int32_t row,
                       int32_t column, float sum, Write write) {
  column += work.column;
  if (column >= args.n) return;
  const int64_t element = int64_t{work.tile.first_row + row} * args.n + column;
  if (args.bias != nullptr) {
    sum += Widen(args.bias[work.tile.position * args.bias_stride + column]);
  }
  if (args.accumulate) sum += Widen(args.out[element]);
  write(element, Narrow<Out>(sum));
}

template <typename T, typename Out>
__device__ void WriteSums(const ProjectionArgs<T, Out>& args, const Work& work,
                          const Sums<T>& sums) {
  sums.ForEach(work.tile.count, [&](int32_t row, int32_t column, float sum) {
    Finish(args, work, row, column, sum,
           [&](int64_t element, Out value) { args.out[element] = value; });
  });
}

// Writes the activated outputs by way of shared memory: threads hold their sums in registers, over
// which loops are unrolled, and the activation functions are long.
template <typename T, typename Out>
__device__ void WriteActivated(const ProjectionArgs<T, Out>& args, const Work& work,
                               const Sums<T>& sums, ProjectionShared<T>& shared) {
  SyncBlock();  // the slices are no longer read
  sums.ForEach(work.tile.count,
               [&](int32_t row, int32_t column, float sum) { shared.sums[row][column] = sum; });
  SyncBlock();
  for (int32_t i = ThreadIndex(); i < work.tile.count * kTileColumns; i += kTileThreads) {
    const int32_t row = i / kTileColumns, column = i % kTileColumns;
    Finish(args, work, row, column, shared.sums[row][column], [&](int64_t element, Out value) {
      const Out in = args.gate == nullptr ? value : args.gate[element];
      float activated = Apply(args.activation, Widen(in));
      if (args.gate != nullptr) activated *= Widen(value);
      args.out[element] = Narrow<Out>(activated);
    });
  }
}

// Keeps kStages - 1 slices in flight while it multiplies one.
template <typename T, typename Out, bool kAsync>
__device__ void Multiply(const ProjectionArgs<T, Out>& args, const Work& work,
                         ProjectionShared<T>& shared) {
  constexpr int32_t kDepth = Stage<T>::kDepth, kAhead = kStages - 1;
  const int32_t steps = (args.k + kDepth - 1) / kDepth;
  for (int32_t step = 0; step < kAhead; ++step) {
    if (step < steps) BringStage<T, Out, kAsync>(args, work, step * kDepth, shared.stages[step]);
    CommitCopies();
  }
  Sums<T> sums;
  for (int32_t step = 0; step < steps; ++step) {
    WaitCopies<kAhead - 1>();
    SyncBlock();  // this step's slices have arrived, and the previous ones are no longer read
    const int32_t next = step + kAhead;
    if (next < steps) {
      BringStage<T, Out, kAsync>(args, work, next * kDepth, shared.stages[next % kStages]);
    }
    CommitCopies();
    sums.Add(shared.stages[step % kStages], work.tile.count);
  }
  if (args.activate) {
    WriteActivated(args, work, sums, shared);
  } else {
    WriteSums(args, work, sums);
  }
  SyncBlock();
}

template <typename T, typename Out, bool kAsync>
__global__ void __launch_bounds__(kTileThreads) ProjectionKernel(ProjectionArgs<T, Out> args) {
  auto& shared = SharedMemory<ProjectionShared<T>>();
  const int32_t column_tiles = (args.n + kTileColumns - 1) / kTileColumns;
  const int64_t items = int64_t{*args.tiles.count} * column_tiles;
  for (int64_t item = BlockIndex(); item < items; item += GridBlocks()) {
    const Work work = {args.tiles.tiles[item / column_tiles],
                       static_cast<int32_t>(item % column_tiles) * kTileColumns};
    Multiply<T, Out, kAsync>(args, work, shared);
  }
}

template <typename T, typename Out>
const Kernel kProjection = KernelOf("Projection", &ProjectionKernel<T, Out, true>);
template <typename T, typename Out>
const Kernel kProjectionUnaligned = KernelOf("ProjectionUnaligned",
                                             &ProjectionKernel<T, Out, false>);

}  // namespace

template <typename T, typename Out>
void Project(Stream& stream, const ProjectionArgs<T, Out>& args) {
  SLUICE_CHECK(args.k >= 1 && args.n >= 1);
  const bool aligned = RowsAligned(args.x, args.k) && RowsAligned(args.weight, args.n);
  const int64_t column_tiles = (args.n + kTileColumns - 1) / kTileColumns;
  Launch(stream, aligned ? kProjection<T, Out> : kProjectionUnaligned<T, Out>,
         {PersistentBlocks(stream, args.tiles.capacity * column_tiles, 4), kTileThreads,
          sizeof(ProjectionShared<T>)},
         args);
}

template void Project(Stream&, const ProjectionArgs<float, float>&);
template void Project(Stream&, const ProjectionArgs<BFloat16, BFloat16>&);
template void Project(Stream&, const ProjectionArgs<BFloat16, float>&);

}  // namespace sluice::kernels::cuda
