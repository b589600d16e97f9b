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

// Writes the places of the work's queries to shared memory, and copies their features there.
template <bool kBulk, bool kShaped, typename T, typename Shared>
__device__ void BringQueries(const AttentionKernelArgs<T>& args, const AttentionWork& work,
                             int32_t queries, Shared& shared) {
  const AttentionArgs<T>& op = args.op;
  for (int32_t i = ThreadIndex(); i < queries; i += kThreads) {
    StoreWhole(PlaceOf<kShaped>(op, work, i), &shared.queries[i]);
  }
  SyncBlock();
  constexpr int32_t kPerRow = Shared::kDims / kCopyElements<T>;
  const int32_t dim = op.kv.head_dim;
  const int64_t stride = op.q_stride == 0 ? int64_t{op.q_heads} * dim : op.q_stride;
  const TurnedRows<T, Shared::kDims> rows = {shared.q};
  SLUICE_ROLLED
  for (int32_t i = ThreadIndex(); i < queries * kPerRow; i += kThreads) {
    const int32_t query = i / kPerRow, d = i % kPerRow * kCopyElements<T>;
    const QueryPlace place = LoadWhole<QueryPlace>(&shared.queries[query]);
    const T* const from = op.q + place.row * stride + place.head * dim + d;
    const int32_t count = place.visible > 0 ? dim - d : 0;
    if (kBulk || args.aligned) {
      Bring<T, true>(rows.At(query, d), from, op.q, count);
    } else {
      Bring<T, false>(rows.At(query, d), from, op.q, count);
    }
  }
  CommitCopies();
}

// Returns the memory of the calling thread for merged sums, and the distance between two of them.
template <typename T, typename Shared>
__device__ float* TotalsOf(const AttentionArgs<T>& args, Shared& shared, int32_t& stride) {
  if constexpr (Shared::kHasTotals) {
    stride = kWarp;
    return reinterpret_cast<float*>(shared.of_warps[Warp()]) + Lane();
  } else {
    stride = kThreads;
    return args.scratch + int64_t{BlockIndex()} * (Shared::kDims / 2) * kThreads + ThreadIndex();
  }
}

// Does the work. All warps share the queries of a narrow tile (kernels/cuda/attention_sums.h).
template <bool kNarrow, bool kBulk, bool kShaped, typename T, typename Shared>
__device__ void Attend(const AttentionKernelArgs<T>& args, const AttentionWork& work,
                       Shared& shared, RingPlace& place) {
  constexpr int32_t kDims = Shared::kDims, kChunk = Shared::kChunk, kKeys = Shared::kPieceKeys;
  constexpr int32_t kShare = kNarrow ? kWarps : 1;
  using Sums = WarpSums<T, kDims, kShaped, kShare>;
  const AttentionArgs<T>& op = args.op;
  Pieces<T, kBulk, kShaped, Shared> pieces(op, work, shared, place, args.aligned);
  if (kBulk) pieces.Begin();
  BringQueries<kBulk, kShaped>(args, work, kNarrow ? kWarpQueries : kTileQueries, shared);
  if (!kBulk) pieces.Begin();
  WaitCopies<kBulk ? 0 : Shared::kSlots - 1>();
  SyncBlock();

  const int32_t first_row = kNarrow ? 0 : Warp() * kWarpQueries;
  const TurnedRows<T, kDims> rows = {shared.q};
  const Queries<T, kDims> queries(rows.From(first_row));
  const ScoreShape shape = ShapeOf(op);
  int32_t stride = 0;
  float* const totals = Sums::kInRegisters ? nullptr : TotalsOf(op, shared, stride);
  Sums sums(shared.queries + first_row, totals, stride, shape);
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
    SLUICE_ROLLED
    for (; first < end; first += kChunk) {
      const bool sees = sums.Sees(first, kChunk), divides = work.Divides(first, first + kChunk);
      Scores<Sums::kOwnKeys> scores = {};
      SLUICE_UNROLL
      for (int32_t piece = 0; piece < Shared::kPieces; ++piece) {
        const auto keys = pieces.Next(piece, first);
        // Scores of keys after the context are hidden, so their weights are zeros.
        if (!sees || first + piece * kKeys >= work.tile.context) continue;
        if constexpr (kNarrow) {
          constexpr int32_t kOwn = kKeys / kWeightBlock;  // blocks of the piece
          if (Warp() / kOwn != piece % (kWarps / kOwn)) continue;
          AddScores<kWeightBlock>(queries, keys.From(Warp() % kOwn * kWeightBlock), scores,
                                  piece * kOwn / kWarps * 2);
        } else {
          AddScores<kKeys>(queries, keys, scores, piece * (kKeys / 8));
        }
      }
      typename Sums::ChunkWeights weights = {};
      float keep[2];
      if constexpr (kNarrow) {
        if (sees) sums.WeighShared(first, scores, shared.narrow, keep);
      } else if (sees) {
        sums.Weigh(first, scores);
        SLUICE_UNROLL
        for (int32_t n = 0; n < kChunk / 8; n += 2) weights.Set(n / 2, &scores[n]);
      }
      SLUICE_UNROLL
      for (int32_t piece = 0; piece < Shared::kPieces; ++piece) {
        const auto values =
            pieces.Next(Shared::kPieces + piece, first, divides ? shared.cleared[piece] : nullptr);
        if (!sees) continue;
        if constexpr (kNarrow) {
          if (piece == 0) sums.TakeShared(shared.narrow, keep, weights);
        }
        if (first + piece * kKeys >= work.tile.context) continue;
        sums.template AddValues<kKeys>(values, weights, piece * (kKeys / kWeightBlock));
      }
      if (!divides || !sees) continue;
      int32_t cleared = 0;
      for (int32_t i = 0; i < Shared::kPieces * kWarps; ++i) {
        if (first + i / kWarps * kKeys >= work.tile.context) continue;
        cleared |= shared.cleared[i / kWarps][i % kWarps];
      }
      if (cleared != 0) sums.AddCleared(weights, first, ClearedValuesOf(op, work));
    }
    if (sees_segment) FinishSegment(args, work, segment, first_row, divided, sums);
  }
  if (!kBulk) WaitCopies<0>();
  if (divided) return;
  if constexpr (kNarrow) {
    if (args.aligned) {
      FinishSharedRows<true>(op, work, shared, sums);
    } else {
      FinishSharedRows<false>(op, work, shared, sums);
    }
  } else {
    T* const memory = reinterpret_cast<T*>(shared.of_warps[Warp()]);
    const QueryPlace* const places = shared.queries + first_row;
    if (kBulk || args.aligned) {
      FinishRows<true, kDims>(op, work, places, memory, sums);
    } else {
      FinishRows<false, kDims>(op, work, places, memory, sums);
    }
  }
}

// A block takes a tile with a KV head.
template <typename T, int32_t kDims, int32_t kKeys, int32_t kRing, bool kBulk, bool kShaped>
__global__ void __launch_bounds__(kThreads) AttentionKernel(AttentionKernelArgs<T> args) {
  using Shared = AttentionShared<T, kDims, kKeys, kRing>;
  auto& shared = SharedMemory<Shared>();
  const AttentionTiles& tiles = args.op.tiles;
  const int32_t kv_heads = args.op.kv.kv_heads, wide = tiles.counts->wide;
  const int32_t items = (wide + tiles.counts->narrow) * kv_heads;
  if (kBulk && ThreadIndex() == 0) {
    for (Arrival& arrival : shared.arrivals) InitWarpArrival(arrival, kKeys / kPageTokens);
  }
  RingPlace place;
  int32_t item = BlockIndex();
  while (item < items) {
    SyncBlock();
    if (ThreadIndex() == 0) shared.next = TakeWork(tiles.taken, items);
    const int32_t tile = item / kv_heads;
    const AttentionWork work = WorkOf<kShaped>(args.op, tiles.tiles[tile], item - tile * kv_heads);
    if (tile < wide) {
      Attend<false, kBulk, kShaped>(args, work, shared, place);
    } else {
      Attend<true, kBulk, kShaped>(args, work, shared, place);
    }
    SyncBlock();
    item = shared.next;
  }
}

template <typename T, int32_t kDims, int32_t kKeys, int32_t kRing, bool kBulk, bool kShaped>
const Kernel kAttention = KernelOf(kShaped ? kBulk ? "ShapedAttention" : "ShapedAttentionByRows"
                                   : kBulk ? "Attention"
                                           : "AttentionByRows",
                                   &AttentionKernel<T, kDims, kKeys, kRing, kBulk, kShaped>);

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
        parts[j] = ReadRow</*kAligned=*/true, kEach>(KvRow<const float>{record, 0}, dims);
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
    FinishRow<kAligned, kEach>(op, work, query, y, merged.sum);
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

template <typename T, int32_t kDims, int32_t kKeys, int32_t kRing, bool kBulk>
AttentionVariant Variant(bool aligned, bool shaped) {
  constexpr int32_t kBytes = sizeof(AttentionShared<T, kDims, kKeys, kRing>);
  const Kernel& merge = shaped
                            ? aligned ? kMerge<T, kDims, true, true> : kMerge<T, kDims, false, true>
                        : aligned ? kMerge<T, kDims, true, false>
                                  : kMerge<T, kDims, false, false>;
  if (shaped) return {kAttention<T, kDims, kKeys, kRing, kBulk, true>, merge, kBytes};
  return {kAttention<T, kDims, kKeys, kRing, kBulk, false>, merge, kBytes};
}

// Returns the variant for heads of up to kDims features. Heads of kDims features in bfloat16 have
// bulk copies and a large ring, if that fits `limit`. Others have a ring that fits every GPU.
template <typename T, int32_t kDims, int32_t kKeys, int32_t kRing, int32_t kMinKeys,
          int32_t kMinRing>
AttentionVariant VariantFor(int32_t head_dim, int32_t limit, bool aligned, bool shaped) {
  static_assert(sizeof(AttentionShared<T, kDims, kMinKeys, kMinRing>) <= kSharedBytesOfEveryGpu);
  if constexpr (sizeof(T) == sizeof(BFloat16)) {
    constexpr auto kBytes = static_cast<int32_t>(sizeof(AttentionShared<T, kDims, kKeys, kRing>));
    if (aligned && head_dim == kDims && limit >= kBytes) {
      return Variant<T, kDims, kKeys, kRing, true>(aligned, shaped);
    }
  }
  return Variant<T, kDims, kMinKeys, kMinRing, false>(aligned, shaped);
}

template <typename T>
AttentionVariant VariantFor(int32_t head_dim, int32_t limit, bool aligned, bool shaped) {
  SLUICE_CHECK(head_dim >= 1 && head_dim <= kMaxHeadDim);
  constexpr bool kSmall = sizeof(T) == sizeof(BFloat16);
  if (head_dim <= 64) return VariantFor<T, 64, 64, 4, 64, 4>(head_dim, limit, aligned, shaped);
  if (head_dim <= 128) {
    return VariantFor < T, 128, 64, 4, kSmall ? 64 : 32,
           kSmall ? 4 : 3 > (head_dim, limit, aligned, shaped);
  }
  return VariantFor < T, 256, 64, 3, kSmall ? 32 : 16,
         kSmall ? 3 : 2 > (head_dim, limit, aligned, shaped);
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
