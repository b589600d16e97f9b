#include "kernels/cuda/score.h"

#include <cmath>

#include "base/check.h"
#include "kernels/cuda/product_loop.h"
#include "kernels/cuda/reduce.h"
#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int32_t kMergeThreads = 128, kMergeWarps = kMergeThreads / kWarp;

// Returns the part of the union of the columns of parts `a` and `b`.
__device__ ScorePart Join(const ScorePart& a, const ScorePart& b) {
  const float largest = fmaxf(a.largest, b.largest);
  // exp(-inf - -inf) would be NaN.
  const float base = largest == -INFINITY ? 0.0f : largest;
  return {largest, a.sum * expf(a.largest - base) + b.sum * expf(b.largest - base)};
}

// Computes the parts of a tile. Each warp computes one part of each row. Eight lanes share a row.
template <typename Tile, typename T>
__device__ void ScoreTile(const ScoreArgs<T>& args, const RowGroup& rows, int32_t first_tile_column,
                          const Sums<T, Tile>& sums) {
  constexpr int32_t kColumnBlocks = Sums<T, Tile>::kColumnBlocks;
  static_assert(kColumnBlocks * 16 == kScoreColumns);
  const int64_t blocks = (args.n + kScoreColumns - 1) / kScoreColumns;
  const int32_t first_column = first_tile_column + Sums<T, Tile>::FirstColumn();
  if (first_column >= args.n) return;
  SLUICE_UNROLL
  for (int32_t r = 0; r < 2 * Sums<T, Tile>::kRowBlocks; ++r) {
    const int32_t row = Sums<T, Tile>::Row(r / 2, r % 2);
    const bool live = row < rows.count;
    const int32_t of_rows = rows.first_row + row;
    const int32_t target = live ? args.requests[of_rows].target : -1;
    float logits[kColumnBlocks * 2];
    ScorePart part = {-INFINITY, 0};
    SLUICE_UNROLL
    for (int32_t c = 0; c < kColumnBlocks; ++c) {
      const Floats<2> two = sums.At(r / 2, r % 2, c);
      SLUICE_UNROLL
      for (int32_t j = 0; j < 2; ++j) {
        const int32_t column = first_tile_column + Sums<T, Tile>::Column(c) + j;
        float z = -INFINITY;
        if (live && column < args.n) {
          z = two.at[j];
          if (args.bias != nullptr) z += Widen(args.bias[column]);
          if (args.soft_cap != 0) z = args.soft_cap * tanhf(z / args.soft_cap);
          if (column == target) args.target_logits[of_rows] = z;
        }
        logits[2 * c + j] = z;
        part.largest = fmaxf(part.largest, z);
      }
    }
    SLUICE_UNROLL
    for (const float z : logits) part.sum += z == -INFINITY ? 0.0f : expf(z - part.largest);
    SLUICE_UNROLL
    for (int32_t mask = 4; mask < kWarp; mask *= 2) {
      part = Join(part, {ShuffleXor(part.largest, mask), ShuffleXor(part.sum, mask)});
    }
    if (!live || Lane() / 4 != 0) continue;
    ScorePart& whole = args.parts[of_rows * blocks + first_column / kScoreColumns];
    whole.largest = part.largest;
    whole.sum = part.sum;
  }
}

template <typename T, typename Tile, bool kAligned>
__global__ void __launch_bounds__(Tile::kThreads) ScoreTilesKernel(ScoreArgs<T> args) {
  auto& shared = SharedMemory<ProductShared<T, Tile>>();
  const Operands<T> operands = {args.x, args.weight, args.k, args.n, args.tiles};
  MultiplyTiles<Tile, kAligned>(
      operands, shared, [&](const RowGroup& rows, int32_t column, const Sums<T, Tile>& sums) {
        ScoreTile(args, rows, column, sums);
      });
}

// One warp adds up the parts of a row.
template <typename T>
__global__ void __launch_bounds__(kMergeThreads) MergeScoresKernel(ScoreArgs<T> args) {
  const int32_t rows = *args.rows.count;
  const int64_t blocks = (args.n + kScoreColumns - 1) / kScoreColumns;
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
    // If no logit is finite, or one is NaN or +inf, the sum is NaN.
    const bool finite = sum == sum;
    const double logprob = args.target_logits[r] - (largest + log(sum));
    SampleOutcome& to = args.outcomes[(args.first == nullptr ? 0 : *args.first) + r];
    to.token = finite ? args.requests[r].target : -1;
    to.logprob = finite ? static_cast<float>(logprob) : NAN;
  }
}

template <typename T>
const Kernel kScoreTiles = KernelOf("ScoreTiles", &ScoreTilesKernel<T, SmallTile, true>);
template <typename T>
const Kernel kScoreTilesLarge = KernelOf("ScoreTilesLarge", &ScoreTilesKernel<T, LargeTile, true>);
template <typename T>
const Kernel kScoreTilesUnaligned = KernelOf("ScoreTilesUnaligned",
                                             &ScoreTilesKernel<T, SmallTile, false>);
template <typename T>
const Kernel kMergeScores = KernelOf("MergeScores", &MergeScoresKernel<T>);

}  // namespace

template <typename T>
void Score(Stream& stream, const ScoreArgs<T>& args) {
  SLUICE_CHECK(args.k >= 1 && args.n >= 1);
  const Operands<T> operands = {args.x, args.weight, args.k, args.n, args.tiles};
  if (!RowsAligned(args.x, args.k)) {
    LaunchProduct(stream, operands, kScoreTilesUnaligned<T>, nullptr, args);
  } else {
    const Kernel* large = nullptr;
    if constexpr (sizeof(T) == 2) large = &kScoreTilesLarge<T>;
    LaunchProduct(stream, operands, kScoreTiles<T>, large, args);
  }
  const int32_t blocks = (args.rows.capacity + kMergeWarps - 1) / kMergeWarps;
  Launch(stream, kMergeScores<T>, {PersistentBlocks(stream, blocks, 16), kMergeThreads}, args);
}

template void Score(Stream&, const ScoreArgs<float>&);
template void Score(Stream&, const ScoreArgs<BFloat16>&);

}  // namespace sluice::kernels::cuda
