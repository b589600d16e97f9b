#include "kernels/cuda/hopper_projection.h"

#include "base/check.h"
#include "kernels/cuda/activation_math.h"
#include "kernels/cuda/bring.h"
#include "kernels/simt/warpgroup.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int32_t kDepth = 64;  // of a stage
// The stages of the pipeline: one is multiplied, one may still be, and the others arrive.
constexpr int32_t kStages = 4;
constexpr int32_t kThreads = kGroupThreads, kMatrix = 8;
// A matrix of a GroupOperand, and 16 bytes, so that neighbouring matrices begin in other banks.
constexpr int32_t kMatrixBytes = kMatrix * kMatrix * static_cast<int32_t>(sizeof(BFloat16)) + 16;
constexpr int32_t kDepthMatrices = kDepth / kMatrix;
constexpr int32_t kRowMatrices = kGroupRows / kMatrix;
constexpr int32_t kColumnMatrices = kHopperColumns / kMatrix;
static_assert(kTileRows == kGroupRows && kMatrix == kCopyElements<BFloat16>);

using Sums = float[kHopperColumns / 2];

struct HopperStage {
  alignas(kCopyBytes) unsigned char x[kRowMatrices][kDepthMatrices][kMatrixBytes];
  alignas(kCopyBytes) unsigned char weight[kDepthMatrices][kColumnMatrices][kMatrixBytes];
};

// The sums of a tile reuse the memory of its stages.
union HopperShared {
  HopperStage stages[kStages];
  float sums[kGroupRows][kHopperColumns + 8];  // + 8: neighbouring rows begin in other banks
};

struct Work {
  RowGroup tile;
  int32_t column;
};

#ifdef SLUICE_HAS_PRODUCTS

// The 16 bytes that the calling thread copies of each of several rows of x and depths of the weight
// in a stage: in the next stage they are the same places at other depths.
class Copies {
 public:
  __device__ Copies(const ProjectionArgs<BFloat16>& args, const Work& work)
      : args_(args),
        row_(ThreadIndex() / kDepthMatrices),
        row_block_(ThreadIndex() % kDepthMatrices),
        depth_(ThreadIndex() / kColumnMatrices),
        column_block_(ThreadIndex() % kColumnMatrices),
        rows_(work.tile.count - row_),
        column_bytes_(BytesOf(args.n - work.column - column_block_ * kMatrix)),
        x_(args.x + int64_t{work.tile.first_row + row_} * args.k + row_block_ * kMatrix),
        weight_(args.weight + (int64_t{work.tile.position} * args.k + depth_) * args.n +
                work.column + column_block_ * kMatrix) {}

  // Copies the operands from depth `k` on. Rows, columns and depths beyond the last become zero.
  __device__ void Bring(int32_t k, HopperStage& stage) const {
    const int32_t x_bytes = BytesOf(args_.k - k - row_block_ * kMatrix);
    SLUICE_UNROLL
    for (int32_t i = 0; i < kGroupRows / kRowsApart; ++i) {
      const int32_t row = row_ + i * kRowsApart;
      Copy(stage.x[row / kMatrix][row_block_] + row % kMatrix * kCopyBytes,
           x_ + k + int64_t{i} * kRowsApart * args_.k, i * kRowsApart < rows_ ? x_bytes : 0);
    }
    const BFloat16* const weight = weight_ + int64_t{k} * args_.n;
    SLUICE_UNROLL
    for (int32_t i = 0; i < kDepth / kDepthsApart; ++i) {
      const int32_t depth = depth_ + i * kDepthsApart;
      Copy(stage.weight[depth / kMatrix][column_block_] + depth % kMatrix * kCopyBytes,
           weight + int64_t{i} * kDepthsApart * args_.n, k + depth < args_.k ? column_bytes_ : 0);
    }
  }

 private:
  static constexpr int32_t kRowsApart = kThreads / kDepthMatrices;
  static constexpr int32_t kDepthsApart = kThreads / kColumnMatrices;

  // Returns the bytes of up to 8 elements.
  __device__ static int32_t BytesOf(int32_t elements) {
    const int32_t some = elements < 0 ? 0 : elements < kMatrix ? elements : kMatrix;
    return some * static_cast<int32_t>(sizeof(BFloat16));
  }
  __device__ void Copy(unsigned char* to, const BFloat16* from, int32_t bytes) const {
    CopyAsync(to, bytes > 0 ? from : args_.x, bytes);
  }

  const ProjectionArgs<BFloat16>& args_;
  const int32_t row_, row_block_;       // its first row of x, and its block of 8 depths of it
  const int32_t depth_, column_block_;  // its first depth of the weight, and its 8 columns
  const int32_t rows_, column_bytes_;   // the tile's rows from its first on; 0 to 16
  const BFloat16* const x_;
  const BFloat16* const weight_;
};

__device__ void MultiplyStage(const HopperStage& stage, Sums& sums) {
  SLUICE_UNROLL
  for (int32_t block = 0; block < kDepthMatrices; block += kGroupDepth / kMatrix) {
    MultiplyAddGroup<kHopperColumns>(
        sums, {stage.x[0][block], kMatrixBytes, kDepthMatrices * kMatrixBytes},
        {stage.weight[block][0], kColumnMatrices * kMatrixBytes, kMatrixBytes});
  }
}

__device__ void MultiplyTile(const ProjectionArgs<BFloat16>& args, const Work& work,
                             HopperShared& shared, Sums& sums) {
  constexpr int32_t kAhead = kStages - 2;
  const int32_t steps = (args.k + kDepth - 1) / kDepth;
  const Copies copies(args, work);
  SLUICE_UNROLL
  for (int32_t step = 0; step < kAhead; ++step) {
    if (step < steps) copies.Bring(step * kDepth, shared.stages[step]);
    CommitCopies();
  }
  SLUICE_ROLLED
  for (int32_t step = 0; step < steps; ++step) {
    WaitCopies<kAhead - 1>();
    WaitProducts<1>();
    ShareWithProducts();
    SyncBlock();  // this stage has arrived, and the last but one is no longer read
    const int32_t next = step + kAhead;
    if (next < steps) copies.Bring(next * kDepth, shared.stages[next % kStages]);
    CommitCopies();
    BeginProducts();
    MultiplyStage(shared.stages[step % kStages], sums);
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
  const int32_t column_tiles = (args.n + kHopperColumns - 1) / kHopperColumns;
  const int32_t tiles = *args.tiles.count;
  // The block's work in a grid of column tiles and row tiles, without a division in the loop.
  const int32_t tiles_apart = GridBlocks() / column_tiles;
  const int32_t columns_apart = GridBlocks() % column_tiles;
  int32_t tile = BlockIndex() / column_tiles, column = BlockIndex() % column_tiles;
  while (tile < tiles) {
    const Work work = {args.tiles.tiles[tile], column * kHopperColumns};
    Sums sums = {};
    MultiplyTile(args, work, shared, sums);
    WriteTile(args, work, shared, sums);
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
  SLUICE_CHECK(RowsAligned(args.x, args.k) && RowsAligned(args.weight, args.n));
  const int64_t column_tiles = (args.n + kHopperColumns - 1) / kHopperColumns;
  Launch(stream, kHopperProjection,
         {PersistentBlocks(stream, args.tiles.capacity * column_tiles, 2), kThreads,
          HopperSharedBytes()},
         args);
}

}  // namespace sluice::kernels::cuda
