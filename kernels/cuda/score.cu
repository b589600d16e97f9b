#include "kernels/cuda/score.h"

#include <cmath>

#include "base/check.h"
#include "kernels/cuda/product_loop.h"
#include "kernels/cuda/reduce.h"
#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {
namespace {

static_assert(kScoreColumns == kTileColumns);
constexpr int32_t kMergeThreads = 128, kMergeWarps = kMergeThreads / kWarp;

// Returns the part of several columns from their parts `a` and `b`.
__device__ ScorePart Join(const ScorePart& a, const ScorePart& b) {
  const float largest = fmaxf(a.largest, b.largest);
  // exp(-inf - -inf) would be NaN.
  const float base = largest == -INFINITY ? 0.0f : largest;
  return {largest, a.sum * expf(a.largest - base) + b.sum * expf(b.largest - base)};
}

// Computes the parts of a tile. Two neighbouring threads share a row, half of the columns each.
template <typename T>
__device__ void ScoreTile(const ScoreArgs<T>& args, const ProductWork& work,
                          ProductShared<T>& shared) {
  constexpr int32_t kHalf = kTileColumns / 2;
  const int32_t row = ThreadIndex() / 2, half = ThreadIndex() % 2;
  const bool live = row < work.tile.count;
  const int32_t r = work.tile.first_row + row;
  const int32_t target = live ? args.requests[r].target - work.column : -1;
  float* const logits = shared.sums[row] + half * kHalf;
  const int32_t first = half * kHalf, left = args.n - work.column - first;
  const int32_t columns = !live || left < 0 ? 0 : left < kHalf ? left : kHalf;
  ScorePart part = {-INFINITY, 0};
  for (int32_t i = 0; i < columns; ++i) {
    float z = logits[i];
    if (args.bias != nullptr) z += Widen(args.bias[work.column + first + i]);
    if (args.soft_cap != 0) z = args.soft_cap * tanhf(z / args.soft_cap);
    if (first + i == target) args.target_logits[r] = z;
    logits[i] = z;
    part.largest = fmaxf(part.largest, z);
  }
  for (int32_t i = 0; i < columns; ++i) {
    part.sum += logits[i] == -INFINITY ? 0.0f : expf(logits[i] - part.largest);
  }
  const ScorePart other = {ShuffleXor(part.largest, 1), ShuffleXor(part.sum, 1)};
  if (!live || half != 0) return;
  const int64_t blocks = (args.n + kTileColumns - 1) / kTileColumns;
  ScorePart& whole = args.parts[r * blocks + work.column / kTileColumns];
  const ScorePart joined = Join(part, other);
  whole.largest = joined.largest;
  whole.sum = joined.sum;
}

template <typename T, bool kAsync>
__global__ void __launch_bounds__(kTileThreads) ScoreTilesKernel(ScoreArgs<T> args) {
  auto& shared = SharedMemory<ProductShared<T>>();
  const int32_t column_tiles = (args.n + kTileColumns - 1) / kTileColumns;
  const int64_t items = int64_t{*args.tiles.count} * column_tiles;
  for (int64_t item = BlockIndex(); item < items; item += GridBlocks()) {
    const ProductWork work = {args.tiles.tiles[item / column_tiles],
                              static_cast<int32_t>(item % column_tiles) * kTileColumns};
    Sums<T> sums;
    MultiplyTile<kAsync>(Operands<T>{args.x, args.weight, args.k, args.weight_stride}, work, shared,
                         sums);
    ShareSums(work, sums, shared);
    ScoreTile(args, work, shared);
    SyncBlock();
  }
}

// Adds up the parts of a row, by one warp.
template <typename T>
__global__ void __launch_bounds__(kMergeThreads) MergeScoresKernel(ScoreArgs<T> args) {
  const int32_t rows = *args.rows.count;
  const int64_t blocks = (args.n + kTileColumns - 1) / kTileColumns;
  for (int32_t r = BlockIndex() * kMergeWarps + Warp(); r < rows; r += GridBlocks() * kMergeWarps) {
    const ScorePart* const parts = args.parts + r * blocks;
    float largest = -INFINITY;
    for (int64_t i = Lane(); i < blocks; i += kWarp) largest = fmaxf(largest, parts[i].largest);
    largest = LaneReduce(largest, Max());
    double sum = 0;
    for (int64_t i = Lane(); i < blocks; i += kWarp) {
      sum += static_cast<double>(parts[i].sum) * expf(parts[i].largest - largest);
    }
    sum = LaneReduce(sum, Plus());
    if (Lane() != 0) continue;
    // Without a finite logit, or with one that is NaN or +inf, the sum is NaN.
    const bool finite = sum == sum;
    const double logprob = args.target_logits[r] - (largest + log(sum));
    SampleOutcome& to = args.outcomes[(args.first == nullptr ? 0 : *args.first) + r];
    to.token = finite ? args.requests[r].target : -1;
    to.logprob = finite ? static_cast<float>(logprob) : NAN;
  }
}

template <typename T>
const Kernel kScoreTiles = KernelOf("ScoreTiles", &ScoreTilesKernel<T, true>);
template <typename T>
const Kernel kScoreTilesUnaligned = KernelOf("ScoreTilesUnaligned", &ScoreTilesKernel<T, false>);
template <typename T>
const Kernel kMergeScores = KernelOf("MergeScores", &MergeScoresKernel<T>);

}  // namespace

template <typename T>
void Score(Stream& stream, const ScoreArgs<T>& args) {
  SLUICE_CHECK(args.k >= 1 && args.n >= 1);
  const bool aligned = RowsAligned(args.x, args.k) && RowsAligned(args.weight, args.weight_stride);
  const int64_t column_tiles = (args.n + kTileColumns - 1) / kTileColumns;
  Launch(stream, aligned ? kScoreTiles<T> : kScoreTilesUnaligned<T>,
         {PersistentBlocks(stream, args.tiles.capacity * column_tiles, 4), kTileThreads,
          sizeof(ProductShared<T>)},
         args);
  const int32_t blocks = (args.rows.capacity + kMergeWarps - 1) / kMergeWarps;
  Launch(stream, kMergeScores<T>, {PersistentBlocks(stream, blocks, 16), kMergeThreads}, args);
}

template void Score(Stream&, const ScoreArgs<float>&);
template void Score(Stream&, const ScoreArgs<BFloat16>&);

}  // namespace sluice::kernels::cuda
