#include "kernels/cuda/attention.h"

#include <cmath>

#include "base/check.h"
#include "kernels/cuda/attention_finish.h"
#include "kernels/cuda/attention_pieces.h"
#include "kernels/cuda/attention_sums.h"
#include "kernels/cuda/attention_work.h"
#include "kernels/cuda/bring.h"
#include "kernels/cuda/vector.h"
#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int32_t kThreads = kAttentionThreads, kWarps = kThreads / kWarp;

template <typename T>
__device__ ScoreShape ShapeOf(const AttentionArgs<T>& args) {
  ScoreShape shape = {.scale = args.scale,
                      .soft_cap = args.soft_cap,
                      .window = args.window,
                      .bias = nullptr,
                      .bias_stride = 0,
                      .silu_share = args.silu_share};
  if (args.bias == nullptr) return shape;
  shape.bias = args.bias + args.bias_positions;
  shape.bias_stride = 2 * int64_t{args.bias_positions} + kBiasSlack;
  return shape;
}

// Does the work with a team: all of the block's threads, or the calling thread's warp.
template <bool kBlock, bool kAsync, bool kShaped, typename T, typename Shared>
__device__ void Attend(const AttentionKernelArgs<T>& args, const AttentionWork& work,
                       Shared& shared) {
  using Threads = AttentionTeam<Shared, kBlock>;
  constexpr int32_t kChunk = Shared::kChunk;
  const AttentionArgs<T>& op = args.op;
  const int32_t first_query = Threads::FirstQuery();
  for (int32_t i = Threads::Thread(); i < Threads::kQueries; i += Threads::kThreads) {
    StoreWhole(PlaceOf<kShaped>(op, work, i), &shared.queries[first_query + i]);
  }
  Threads::Sync();
  constexpr int32_t kPerRow = Shared::kDims / kCopyElements<T>;
  const int32_t dim = op.kv.head_dim;
  for (int32_t i = Threads::Thread(); i < Threads::kQueries * kPerRow; i += Threads::kThreads) {
    const int32_t query = first_query + i / kPerRow, d = i % kPerRow * kCopyElements<T>;
    const QueryPlace place = LoadWhole<QueryPlace>(&shared.queries[query]);
    const int64_t stride = op.q_stride == 0 ? int64_t{op.q_heads} * dim : op.q_stride;
    Bring<T, kAsync>(&shared.q[query][d], op.q + place.row * stride + place.head * dim + d, op.q,
                     place.visible > 0 ? dim - d : 0);
  }
  Pieces<T, kAsync, kShaped, Shared, Threads> pieces(op, work, shared);
  pieces.Begin();

  const int32_t first_row = Warp() * kWarpQueries;
  const ScoreShape shape = ShapeOf(op);
  WarpSums<T, Shared::kDims, kShaped> sums(shared.queries + first_row, op.scratch, shape);
  const bool divided = work.tile.record >= 0;
  int32_t segment = work.tile.first_segment;
  if (kShaped && segment < work.lowest / kSegmentTokens) segment = work.lowest / kSegmentTokens;
  for (; segment < work.tile.past_segment; ++segment) {
    const int32_t past = (segment + 1) * kSegmentTokens;
    const int32_t end = past < work.tile.context ? past : work.tile.context;
    const bool sees_segment = sums.Sees(segment * kSegmentTokens, kSegmentTokens);
    if (sees_segment) sums.BeginSegment();
    int32_t first = segment * kSegmentTokens;
    if (kShaped && first < work.lowest) first = work.lowest / kChunk * kChunk;
    for (; first < end; first += kChunk) {
      const bool sees = sums.Sees(first, kChunk), divides = work.Divides(first, first + kChunk);
      Scores<kChunk> scores = {};
      SLUICE_UNROLL
      for (int32_t piece = 0; piece < Threads::kPieces; ++piece) {
        const auto keys = pieces.Next(/*clear=*/false);
        if (sees) {
          AddScores<Shared::kDims, Threads::kPieceKeys>(&shared.q[first_row], keys, scores,
                                                        piece * (Threads::kPieceKeys / 8));
        }
      }
      if (sees) sums.Weigh(first, scores);
      int32_t cleared = 0;
      SLUICE_UNROLL
      for (int32_t piece = 0; piece < Threads::kPieces; ++piece) {
        const auto values = pieces.Next(divides);
        if (sees) {
          sums.template AddValues<Threads::kPieceKeys>(values, scores,
                                                       piece * (Threads::kPieceKeys / 8));
        }
        if (!divides) continue;
        for (int32_t warp = 0; warp < Threads::kThreads / kWarp; ++warp) {
          cleared |= shared.cleared[Threads::FirstWarp() + warp];
        }
        Threads::Sync();  // the next piece may be cleared
      }
      if (sees && cleared != 0) AddClearedValues(op, work, first, scores, sums);
    }
    if (sees_segment) FinishSegment(args, work, segment, kBlock ? first_row : 0, divided, sums);
  }
  WaitCopies<0>();
  if (!divided) FinishRows<kAsync>(op, work, shared, sums);
}

// A block takes a wide tile with a KV head. If there are more narrow tiles than blocks, each warp
// takes a narrow tile.
template <typename T, int32_t kDims, int32_t kKeys, int32_t kRing, bool kAsync, bool kShaped>
__global__ void __launch_bounds__(kThreads) AttentionKernel(AttentionKernelArgs<T> args) {
  using Shared = AttentionShared<T, kDims, kKeys, kRing>;
  auto& shared = SharedMemory<Shared>();
  const AttentionTiles& tiles = args.op.tiles;
  const int32_t kv_heads = args.op.kv.kv_heads;
  const int32_t wide = tiles.counts->wide * kv_heads, narrow = tiles.counts->narrow * kv_heads;
  const auto work_of = [&](int32_t index) {
    return WorkOf<kShaped>(args.op, tiles.tiles[index / kv_heads], index % kv_heads);
  };
  int32_t shares = (narrow + GridBlocks() - 1) / GridBlocks();
  shares = shares < 1 ? 1 : shares < Shared::kTeams ? shares : Shared::kTeams;
  const int32_t items = wide + (narrow + shares - 1) / shares;
  int32_t item = BlockIndex();
  while (item < items) {
    SyncBlock();
    if (ThreadIndex() == 0) shared.next = TakeWork(tiles.taken, items);
    if (item < wide || shares == 1) {
      Attend<true, kAsync, kShaped>(args, work_of(item), shared);
    } else if constexpr (Shared::kTeams > 1) {
      const int32_t own = wide + (item - wide) * shares + Warp();
      if (Warp() < shares && own < wide + narrow) {
        Attend<false, kAsync, kShaped>(args, work_of(own), shared);
      }
    }
    SyncBlock();
    item = shared.next;
  }
}

template <typename T, int32_t kDims, int32_t kKeys, int32_t kRing, bool kAsync, bool kShaped>
const Kernel kAttention = KernelOf(kShaped ? kAsync ? "ShapedAttention" : "ShapedAttentionUnaligned"
                                   : kAsync ? "Attention"
                                            : "AttentionUnaligned",
                                   &AttentionKernel<T, kDims, kKeys, kRing, kAsync, kShaped>);

// Merges the records of the divided tiles. A warp merges each query.
template <typename T, int32_t kDims, bool kAligned, bool kShaped>
__global__ void __launch_bounds__(kThreads) MergeKernel(AttentionKernelArgs<T> args) {
  WaitForPrevious();
  constexpr int32_t kEach = kDims / kWarp, kAtOnce = 8;
  const AttentionArgs<T>& op = args.op;
  const int32_t kv_heads = op.kv.kv_heads, dims = args.record_stride - kRecordTail;
  const int32_t items = op.tiles.counts->divided * kv_heads * kTileQueries;
  for (int32_t i = BlockIndex() * kWarps + Warp(); i < items; i += GridBlocks() * kWarps) {
    const int32_t tile = i / kTileQueries / kv_heads, index = i % kTileQueries;
    const AttentionWork work = WorkOf<kShaped>(op, op.tiles.tiles[op.tiles.capacity - 1 - tile],
                                               i / kTileQueries % kv_heads);
    if (index >= work.queries) continue;
    const QueryPlace query = PlaceOf<kShaped>(op, work, index);
    const int32_t begin = kShaped ? FirstKey(query.position, op.window) / kSegmentTokens : 0;
    const int32_t segments = (query.visible + kSegmentTokens - 1) / kSegmentTokens - begin;
    const float* record = RecordOf(args, work, begin, index);
    const int64_t step = int64_t{work.queries} * args.record_stride;
    Floats<kEach> y = {};
    RecordTail merged = {};
    for (int32_t first = 0; first < segments; first += kAtOnce) {
      Floats<kEach> parts[kAtOnce];
      RecordTail tails[kAtOnce];
      SLUICE_UNROLL
      for (int32_t j = 0; j < kAtOnce; ++j, record += step) {
        if (first + j >= segments) continue;
        parts[j] = ReadRow</*kAligned=*/true, kEach>(record, dims);
        tails[j] = LoadWhole<RecordTail>(record + dims);
      }
      SLUICE_UNROLL
      for (int32_t j = 0; j < kAtOnce; ++j) {
        if (first + j >= segments) continue;
        if (first + j == 0) {
          merged = tails[j];
          y = parts[j];
          continue;
        }
        const MergeFactors factors = AddSegment(merged, tails[j]);
        SLUICE_UNROLL
        for (int32_t e = 0; e < kEach; ++e) y.at[e] = factors.Merge(y.at[e], parts[j].at[e]);
      }
    }
    OwnValue<kEach> own;
    FinishRow<kAligned, kEach>(op, work, query, y, merged.sum, own);
  }
}

template <typename T, int32_t kDims, bool kAligned, bool kShaped>
const Kernel kMerge = KernelOf(kShaped    ? kAligned ? "MergeShapedAttention"
                                                     : "MergeShapedAttentionUnaligned"
                               : kAligned ? "MergeAttention"
                                          : "MergeAttentionUnaligned",
                               &MergeKernel<T, kDims, kAligned, kShaped>);

// The kernels for heads of up to kDims features. shared_bytes is for the first kernel.
struct AttentionVariant {
  const Kernel& attention;
  const Kernel& merge;
  int32_t shared_bytes;
};

template <typename T, int32_t kDims, int32_t kKeys, int32_t kRing, bool kAsync>
AttentionVariant Variant(bool shaped) {
  constexpr int32_t kBytes = sizeof(AttentionShared<T, kDims, kKeys, kRing>);
  if (shaped) {
    return {kAttention<T, kDims, kKeys, kRing, kAsync, true>, kMerge<T, kDims, kAsync, true>,
            kBytes};
  }
  return {kAttention<T, kDims, kKeys, kRing, kAsync, false>, kMerge<T, kDims, kAsync, false>,
          kBytes};
}

// Returns the variant with the largest ring that fits `limit`, or the one that fits every GPU. Rows
// that cannot be copied asynchronously do not benefit from a large ring.
template <typename T, int32_t kDims, int32_t kKeys, int32_t kRing, int32_t kMinKeys,
          int32_t kMinRing>
AttentionVariant VariantFor(int32_t limit, bool aligned, bool shaped) {
  static_assert(sizeof(AttentionShared<T, kDims, kMinKeys, kMinRing>) <= kSharedBytesOfEveryGpu);
  if (!aligned) return Variant<T, kDims, kMinKeys, kMinRing, false>(shaped);
  if (limit >= static_cast<int32_t>(sizeof(AttentionShared<T, kDims, kKeys, kRing>))) {
    return Variant<T, kDims, kKeys, kRing, true>(shaped);
  }
  return Variant<T, kDims, kMinKeys, kMinRing, true>(shaped);
}

template <typename T>
AttentionVariant VariantFor(int32_t head_dim, int32_t limit, bool aligned, bool shaped) {
  SLUICE_CHECK(head_dim >= 1 && head_dim <= kMaxHeadDim);
  if constexpr (sizeof(T) == sizeof(float)) {
    if (head_dim <= 64) return VariantFor<T, 64, 64, 4, 64, 4>(limit, aligned, shaped);
    if (head_dim <= 128) return VariantFor<T, 128, 64, 3, 32, 3>(limit, aligned, shaped);
    return VariantFor<T, 256, 32, 2, 16, 2>(limit, aligned, shaped);
  } else {
    if (head_dim <= 64) return VariantFor<T, 64, 64, 4, 64, 4>(limit, aligned, shaped);
    if (head_dim <= 128) return VariantFor<T, 128, 64, 4, 64, 4>(limit, aligned, shaped);
    return VariantFor<T, 256, 64, 3, 32, 3>(limit, aligned, shaped);
  }
}

}  // namespace

int64_t AttentionScratchFloats(const AttentionSizes& sizes, int32_t head_dim) {
  const int64_t records = MaxAttentionRecords(sizes);
  if (records == 0) return 0;
  return TotalFloats(head_dim, sizes.blocks()) + records * RecordStride(head_dim);
}

template <typename T>
int32_t AttentionSharedBytes(int32_t head_dim, int32_t limit) {
  return VariantFor<T>(head_dim, limit, /*aligned=*/true, /*shaped=*/false).shared_bytes;
}

template <typename T>
void Attention(Stream& stream, const AttentionArgs<T>& args) {
  const int32_t limit = stream.shared_bytes_limit();
  SLUICE_CHECK(args.q_heads % args.kv.kv_heads == 0);
  const AttentionVariant variant =
      VariantFor<T>(args.kv.head_dim, limit, RowsAreAligned(args), args.shaped());
  const AttentionKernelArgs<T> kernel_args = KernelArgsOf(stream, args);
  const int32_t fit = limit / variant.shared_bytes;
  const int32_t resident = fit < 1 ? 1 : fit < kAttentionBlocks ? fit : kAttentionBlocks;
  const int64_t items = int64_t{args.tiles.capacity} * args.kv.kv_heads;
  Launch(stream, variant.attention,
         {PersistentBlocks(stream, items, resident), kThreads, variant.shared_bytes}, kernel_args);
  MergeAttention(stream, kernel_args);
}

template <typename T>
void MergeAttention(Stream& stream, const AttentionKernelArgs<T>& args) {
  const AttentionArgs<T>& op = args.op;
  if (op.tiles.records == 0) return;
  const AttentionVariant variant =
      VariantFor<T>(op.kv.head_dim, stream.shared_bytes_limit(), RowsAreAligned(op), op.shaped());
  const int64_t queries = CeilDiv(op.tiles.records, kWarps);
  Launch(stream, variant.merge,
         {.blocks = PersistentBlocks(stream, queries, 4),
          .threads = kThreads,
          .overlaps_previous = true},
         args);
}

template int32_t AttentionSharedBytes<float>(int32_t, int32_t);
template int32_t AttentionSharedBytes<BFloat16>(int32_t, int32_t);
template void Attention(Stream&, const AttentionArgs<float>&);
template void Attention(Stream&, const AttentionArgs<BFloat16>&);
template void MergeAttention(Stream&, const AttentionKernelArgs<float>&);
template void MergeAttention(Stream&, const AttentionKernelArgs<BFloat16>&);

}  // namespace sluice::kernels::cuda
