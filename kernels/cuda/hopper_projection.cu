#include "kernels/cuda/hopper_projection.h"

#include "base/check.h"
#include "kernels/cuda/activation_math.h"
#include "kernels/cuda/bring.h"
#include "kernels/cuda/weight_layout.h"
#include "kernels/simt/warpgroup.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int32_t kDepth = kGroupSliceDepth;  // of a stage
// The stages of the pipeline: one is multiplied, one may still be, and the others arrive.
constexpr int32_t kStages = 4;
constexpr int32_t kThreads = kGroupThreads;
constexpr int32_t kMatrixBytes = kGroupMatrix * kGroupMatrix * sizeof(BFloat16);
// A matrix of x, and 16 bytes, so that neighbouring matrices begin in other banks.
constexpr int32_t kRowMatrixBytes = kMatrixBytes + 16;
constexpr int32_t kDepthMatrices = kDepth / kGroupMatrix;
constexpr int32_t kRowMatrices = kGroupRows / kGroupMatrix;
constexpr int32_t kColumnMatrices = kHopperColumns / kGroupMatrix;
static_assert(kTileRows == kGroupRows && kGroupMatrix == kCopyElements<BFloat16>);
static_assert(kHopperColumns == kGroupSliceColumns);

using Sums = float[kHopperColumns / 2];

struct HopperRows {
  alignas(kCopyBytes) unsigned char at[kRowMatrices][kDepthMatrices][kRowMatrixBytes];
};

struct HopperShared {
  // The slices of the weight, which bulk copies bring.
  alignas(kCopyBytes) BFloat16 weight[kStages][kGroupSliceElements];
  union {  // The sums of a tile reuse the memory of its rows.
    HopperRows x[kStages];
    float sums[kGroupRows][kHopperColumns + 8];  // + 8: neighbouring rows begin in other banks
  };
  Arrival arrivals[kStages];
};

struct Work {
  RowGroup tile;
  int32_t column;
};

#ifdef SLUICE_HAS_PRODUCTS

// What a block copies for a tile: a slice of the weight in bulk, and 16 bytes a thread of each of
// several rows of x, in the next stage at other depths.
class Copies {
 public:
  __device__ Copies(const ProjectionArgs<BFloat16>& args, const Work& work)
      : args_(args),
        row_(ThreadIndex() / kDepthMatrices),
        row_block_(ThreadIndex() % kDepthMatrices),
        rows_(work.tile.count - row_),
        x_(args.x + int64_t{work.tile.first_row + row_} * args.k + row_block_ * kGroupMatrix),
        weight_(args.weight +
                (int64_t{work.tile.position} * GroupPanels(args.n) + work.column / kHopperColumns) *
                    GroupSlices(args.k) * kGroupSliceElements) {}

  // Copies the operands of step `step` to stage `stage`. Rows and depths beyond the last are zeros.
  __device__ void Bring(int32_t step, int32_t stage, HopperShared& shared) const {
    BulkCopy(shared.weight[stage], weight_ + int64_t{step} * kGroupSliceElements,
             sizeof(shared.weight[stage]), shared.arrivals[stage]);
    const int32_t k = step * kDepth, left = args_.k - k - row_block_ * kGroupMatrix;
    const int32_t elements = left < 0 ? 0 : left < kGroupMatrix ? left : kGroupMatrix;
    SLUICE_UNROLL
    for (int32_t i = 0; i < kGroupRows / kRowsApart; ++i) {
      const int32_t row = row_ + i * kRowsApart;
      const int32_t bytes =
          i * kRowsApart < rows_ ? elements * static_cast<int32_t>(sizeof(BFloat16)) : 0;
      CopyAsync(
          shared.x[stage].at[row / kGroupMatrix][row_block_] + row % kGroupMatrix * kCopyBytes,
          bytes > 0 ? x_ + k + int64_t{i} * kRowsApart * args_.k : args_.x, bytes);
    }
  }

 private:
  static constexpr int32_t kRowsApart = kThreads / kDepthMatrices;

  const ProjectionArgs<BFloat16>& args_;
  const int32_t row_, row_block_;  // its first row of x, and its block of 8 depths of it
  const int32_t rows_;             // the tile's rows from its first on
  const BFloat16* const x_;
  const BFloat16* const weight_;  // of the tile's columns
};

__device__ void MultiplyStage(const HopperShared& shared, int32_t stage, Sums& sums) {
  SLUICE_UNROLL
  for (int32_t block = 0; block < kDepthMatrices; block += kGroupDepth / kGroupMatrix) {
    MultiplyAddGroup<kHopperColumns>(
        sums, {shared.x[stage].at[0][block], kRowMatrixBytes, kDepthMatrices * kRowMatrixBytes},
        {&shared.weight[stage][PlaceInGroupSlice(block * kGroupMatrix, 0)],
         kColumnMatrices * kMatrixBytes, kMatrixBytes});
  }
}

// Multiplies a tile; `before` are the steps of the block's tiles before it.
__device__ void MultiplyTile(const ProjectionArgs<BFloat16>& args, const Work& work, int32_t before,
                             HopperShared& shared, Sums& sums) {
  constexpr int32_t kAhead = kStages - 2;
  const int32_t steps = GroupSlices(args.k);
  const Copies copies(args, work);
  SLUICE_UNROLL
  for (int32_t step = 0; step < kAhead; ++step) {
    if (step < steps) copies.Bring(step, (before + step) % kStages, shared);
    CommitCopies();
  }
  SLUICE_ROLLED
  for (int32_t step = 0; step < steps; ++step) {
    const int32_t stage = (before + step) % kStages, next = step + kAhead;
    WaitCopies<kAhead - 1>();
    WaitArrival(shared.arrivals[stage], (before + step) / kStages);
    WaitProducts<1>();
    ShareWithProducts();
    SyncBlock();  // this stage has arrived, and the last but one is no longer read
    if (next < steps) copies.Bring(next, (before + next) % kStages, shared);
    CommitCopies();
    BeginProducts();
    MultiplyStage(shared, stage, sums);
    CommitProducts();
  }
  WaitProducts<0>();
}

// Calls write(row, column, sum) for each element of this thread.
template <typename Write>
__device__ void ForEach(const Sums& sums, Write write) {
  SLUICE_UNROLL
  for (int32_t i = 0; i < kHopperColumns / 2; ++i) {
    const int32_t row = Warp() * 16 + Lane() / 4 + i / 2 % 2 * 8;
    write(row, i / 4 * 8 + Lane() % 4 * 2 + i % 2, sums[i]);
  }
}

// Writes the sums by way of shared memory, so that neighbouring threads write neighbouring columns,
// and the loop over the activation functions, which are long, is not unrolled.
__device__ void WriteTile(const ProjectionArgs<BFloat16>& args, const Work& work,
                          HopperShared& shared, const Sums& sums) {
  SyncBlock();  // the stages are no longer read
  ForEach(sums, [&](int32_t row, int32_t column, float sum) { shared.sums[row][column] = sum; });
  SyncBlock();
  const int32_t column = work.column + ThreadIndex();
  static_assert(kThreads == kHopperColumns);
  if (column < args.n) {
    const float bias = args.bias == nullptr
                           ? 0.0f
                           : Widen(args.bias[work.tile.position * args.bias_stride + column]);
    SLUICE_ROLLED
    for (int32_t row = 0; row < work.tile.count; ++row) {
      const int64_t element = int64_t{work.tile.first_row + row} * args.n + column;
      float sum = shared.sums[row][ThreadIndex()];
      if (args.bias != nullptr) sum += bias;
      if (args.accumulate) sum += Widen(args.out[element]);
      BFloat16 value = Narrow<BFloat16>(sum);
      if (args.activate) {
        const BFloat16 in = args.gate == nullptr ? value : args.gate[element];
        float activated = Apply(args.activation, Widen(in));
        if (args.gate != nullptr) activated *= Widen(value);
        value = Narrow<BFloat16>(activated);
      }
      args.out[element] = value;
    }
  }
  SyncBlock();  // the sums' memory may be filled again
}

#endif  // SLUICE_HAS_PRODUCTS

__global__ void __launch_bounds__(kThreads) HopperProjectionKernel(ProjectionArgs<BFloat16> args) {
#ifdef SLUICE_HAS_PRODUCTS
  auto& shared = SharedMemory<HopperShared>();
  if (ThreadIndex() == 0) {
    for (Arrival& arrival : shared.arrivals) InitArrival(arrival, /*copies=*/1);
  }
  SyncBlock();
  const int32_t column_tiles = GroupPanels(args.n);
  const int32_t tiles = *args.tiles.count;
  // The block's work in a grid of column tiles and row tiles, without a division in the loop.
  const int32_t tiles_apart = GridBlocks() / column_tiles;
  const int32_t columns_apart = GridBlocks() % column_tiles;
  int32_t tile = BlockIndex() / column_tiles, column = BlockIndex() % column_tiles;
  int32_t steps = 0;  // that the block has done
  while (tile < tiles) {
    const Work work = {args.tiles.tiles[tile], column * kHopperColumns};
    Sums sums = {};
    MultiplyTile(args, work, steps, shared, sums);
    WriteTile(args, work, shared, sums);
    steps += GroupSlices(args.k);
    tile += tiles_apart;
    column += columns_apart;
    if (column >= column_tiles) {
      column -= column_tiles;
      ++tile;
    }
  }
#endif
}

const Kernel kHopperProjection = KernelOf("HopperProjection", &HopperProjectionKernel);

}  // namespace

int32_t HopperSharedBytes() { return sizeof(HopperShared); }

void ProjectOnHopper(Stream& stream, const ProjectionArgs<BFloat16>& args) {
  SLUICE_CHECK(args.k >= 1 && args.n >= 1);
  SLUICE_CHECK(RowsAligned(args.x, args.k) && RowsAligned(args.weight, kGroupSliceElements));
  const int64_t column_tiles = GroupPanels(args.n);
  Launch(stream, kHopperProjection,
         {PersistentBlocks(stream, args.tiles.capacity * column_tiles, 2), kThreads,
          HopperSharedBytes()},
         args);
}

}  // namespace sluice::kernels::cuda
