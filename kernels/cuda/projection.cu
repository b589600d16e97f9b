#include "kernels/cuda/projection.h"

#include <cmath>

#include "base/check.h"
#include "kernels/cuda/activation_math.h"
#include "kernels/cuda/product_loop.h"
#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {
namespace {

// Calls write(element, value) for the element at this row and column of the tile, if there is one;
// `value` is before any activation.
template <typename T, typename Out, typename Write>
__device__ void Finish(const ProjectionArgs<T, Out>& args, const ProductWork& work, int32_t row,
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
__device__ void WriteSums(const ProjectionArgs<T, Out>& args, const ProductWork& work,
                          const Sums<T>& sums) {
  sums.ForEach(work.tile.count, [&](int32_t row, int32_t column, float sum) {
    Finish(args, work, row, column, sum,
           [&](int64_t element, Out value) { args.out[element] = value; });
  });
}

// Writes the activated outputs by way of shared memory: threads hold their sums in registers, over
// which loops are unrolled, and the activation functions are long.
template <typename T, typename Out>
__device__ void WriteActivated(const ProjectionArgs<T, Out>& args, const ProductWork& work,
                               const Sums<T>& sums, ProductShared<T>& shared) {
  ShareSums(work, sums, shared);
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

template <typename T, typename Out, bool kAsync>
__device__ void Multiply(const ProjectionArgs<T, Out>& args, const ProductWork& work,
                         ProductShared<T>& shared) {
  Sums<T> sums;
  MultiplyTile<kAsync>(Operands<T>{args.x, args.weight, args.k, args.n}, work, shared, sums);
  if (args.activate) {
    WriteActivated(args, work, sums, shared);
  } else {
    WriteSums(args, work, sums);
  }
  SyncBlock();
}

template <typename T, typename Out, bool kAsync>
__global__ void __launch_bounds__(kTileThreads) ProjectionKernel(ProjectionArgs<T, Out> args) {
  auto& shared = SharedMemory<ProductShared<T>>();
  const int32_t column_tiles = (args.n + kTileColumns - 1) / kTileColumns;
  const int64_t items = int64_t{*args.tiles.count} * column_tiles;
  for (int64_t item = BlockIndex(); item < items; item += GridBlocks()) {
    const ProductWork work = {args.tiles.tiles[item / column_tiles],
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
          sizeof(ProductShared<T>)},
         args);
}

template void Project(Stream&, const ProjectionArgs<float, float>&);
template void Project(Stream&, const ProjectionArgs<BFloat16, BFloat16>&);
template void Project(Stream&, const ProjectionArgs<BFloat16, float>&);

}  // namespace sluice::kernels::cuda
