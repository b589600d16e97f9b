#include "kernels/cuda/hopper_attention.h"

#include "base/check.h"
#include "kernels/cuda/attention_finish.h"
#include "kernels/cuda/attention_sums.h"
#include "kernels/cuda/attention_work.h"
#include "kernels/cuda/bring.h"
#include "kernels/simt/warpgroup.h"

namespace sluice::kernels::cuda {
namespace {

using T = BFloat16;

constexpr int32_t kThreads = kAttentionThreads, kWarps = kThreads / kWarp;
constexpr int32_t kMatrix = kCopyElements<T>;
// A matrix plus 16 bytes, so that neighbouring matrices begin in other banks.
constexpr int32_t kMatrixBytes = kMatrix * kCopyBytes + kCopyBytes;
static_assert(kThreads == kGroupThreads && kTileQueries == kGroupRows && kMatrix == 8);

// Lines of kWidth elements, stored as matrices of 8 lines by 8 elements.
template <int32_t kLines, int32_t kWidth>
struct Lines {
  alignas(kCopyBytes) unsigned char at[kLines / kMatrix][kWidth / kMatrix][kMatrixBytes];

  // Returns the bytes to the next 8 lines.
  __device__ static constexpr int32_t Across() { return kWidth / kMatrix * kMatrixBytes; }
  // Returns the address of an element.
  __device__ T* Place(int32_t line, int32_t element) {
    return reinterpret_cast<T*>(at[line / kMatrix][element / kMatrix] +
                                line % kMatrix * kCopyBytes) +
           element % kMatrix;
  }
};

template <int32_t kMaxDims>
struct HopperAttentionShared {
  static constexpr int32_t kDims = kMaxDims;
  using Chunk = Lines<kChunk, kDims>;

  union {  // The rows that are written reuse the memory of the queries.
    Lines<kTileQueries, kDims> lines;
    T q[kTileQueries][kDims + kCopyElements<T>];
  };
  Chunk keys[2], values[2];  // the chunk that is multiplied, and the next one
  Lines<kTileQueries, kChunk> weights;
  QueryPlace queries[kTileQueries];
  int32_t cleared[kWarps];  // whether a thread of the warp has cleared values of the chunk
  int32_t next;             // work of the block
};

#ifdef SLUICE_HAS_PRODUCTS

// Copies the chunks of keys or values of a tile to shared memory. A thread copies and clears the
// same 16 bytes of several positions of each page.
template <int32_t kDims>
class ChunkCopies {
 public:
  __device__ ChunkCopies(const AttentionArgs<T>& args, const AttentionWork& work)
      : args_(args),
        work_(work),
        key_(ThreadIndex() / kPerRow),
        column_(ThreadIndex() % kPerRow * kMatrix) {}

  // Copies a chunk. Positions that the tile does not see become zeros.
  __device__ void Bring(const T* layer, int32_t chunk, Lines<kChunk, kDims>& to) const {
    const int32_t left = args_.kv.head_dim - column_;
    SLUICE_UNROLL
    for (int32_t page = 0; page < kChunk / kPageTokens; ++page) {
      const int32_t position = chunk * kChunk + page * kPageTokens;
      const int32_t seen = work_.tile.context - position;
      const T* from = layer;
      if (seen > 0) {
        const int32_t id = args_.pages[work_.sequence.pages_offset + position / kPageTokens];
        from += args_.kv.PageOffset(id, work_.kv_head);
      }
      SLUICE_UNROLL
      for (int32_t k = key_; k < key_ + kPageTokens; k += kRows) {
        cuda::Bring<T, true>(to.Place(page * kPageTokens + k, column_),
                             from + k * args_.kv.head_dim + column_, layer, k < seen ? left : 0);
      }
    }
  }

  // Replaces values that are not finite by zeros and notes whether there were any. Each thread
  // handles the values that it has copied.
  __device__ void Clear(Lines<kChunk, kDims>& values, int32_t* cleared) const {
    bool found = false;
    SLUICE_ROLLED
    for (int32_t key = key_; key < kChunk; key += kRows) {
      if (ClearValues(values.Place(key, column_))) found = true;
    }
    NoteCleared(found, cleared);
  }

 private:
  static constexpr int32_t kPerRow = kDims / kMatrix;
  static constexpr int32_t kRows = kThreads / kPerRow;  // rows that the block copies at a time
  static_assert(kRows >= 1 && kPageTokens % kRows == 0);

  const AttentionArgs<T>& args_;
  const AttentionWork& work_;
  const int32_t key_, column_;  // the first element of a page that the thread copies
};

// Writes the places and the features of the tile's queries.
template <typename Shared>
__device__ void BringQueries(const AttentionArgs<T>& args, const AttentionWork& work,
                             Shared& shared) {
  constexpr int32_t kPerRow = Shared::kDims / kMatrix;
  const int32_t dim = args.kv.head_dim;
  for (int32_t i = ThreadIndex(); i < kTileQueries; i += kThreads) {
    StoreWhole(PlaceOf<false>(args, work, i), &shared.queries[i]);
  }
  SyncBlock();
  const int64_t stride = args.q_stride == 0 ? int64_t{args.q_heads} * dim : args.q_stride;
  for (int32_t i = ThreadIndex(); i < kTileQueries * kPerRow; i += kThreads) {
    const int32_t query = i / kPerRow, d = i % kPerRow * kMatrix;
    const auto place = LoadWhole<QueryPlace>(&shared.queries[query]);
    Bring<T, true>(shared.lines.Place(query, d), args.q + place.row * stride + place.head * dim + d,
                   args.q, place.visible > 0 ? dim - d : 0);
  }
}

// Adds q . k for the keys of a chunk.
template <typename Shared>
__device__ void AddGroupScores(const Shared& shared, const typename Shared::Chunk& keys,
                               float (&scores)[kChunk / 2]) {
  BeginProducts();
  SLUICE_UNROLL
  for (int32_t block = 0; block < Shared::kDims / kMatrix; block += kGroupDepth / kMatrix) {
    MultiplyAddGroup<kChunk, GroupOrder::kByColumns>(
        scores, {shared.lines.at[0][block], kMatrixBytes, shared.lines.Across()},
        {keys.at[0][block], kMatrixBytes, keys.Across()});
  }
  CommitProducts();
  WaitProducts<0>();
}

// Adds the weighted values of a chunk.
template <typename Shared>
__device__ void AddGroupValues(const Shared& shared, const typename Shared::Chunk& values,
                               float (&sums)[Shared::kDims / 2]) {
  BeginProducts();
  SLUICE_UNROLL
  for (int32_t block = 0; block < kChunk / kMatrix; block += kGroupDepth / kMatrix) {
    MultiplyAddGroup<Shared::kDims>(
        sums, {shared.weights.at[0][block], kMatrixBytes, shared.weights.Across()},
        {values.at[block][0], values.Across(), kMatrixBytes});
  }
  CommitProducts();
  WaitProducts<0>();
}

// Writes the weights of the warp's queries, rounded.
template <typename Shared>
__device__ void WriteWeights(const Scores& weights, Shared& shared) {
  SLUICE_UNROLL
  for (int32_t n = 0; n < kChunk / 8; ++n) {
    SLUICE_UNROLL
    for (int32_t i = 0; i < 2; ++i) {
      const int32_t query = Warp() * kWarpQueries + Lane() / 4 + 8 * i;
      *reinterpret_cast<uint32_t*>(shared.weights.Place(query, n * 8 + Lane() % 4 * 2)) =
          RoundToPair(weights[n][2 * i], weights[n][2 * i + 1]);
    }
  }
}

template <typename Shared>
__device__ void Attend(const AttentionKernelArgs<T>& args, const AttentionWork& work,
                       Shared& shared) {
  constexpr int32_t kDims = Shared::kDims;
  const AttentionArgs<T>& op = args.op;
  const int32_t keys = work.tile.past_segment * kSegmentTokens;
  const int32_t end = keys < work.tile.context ? keys : work.tile.context;
  const int32_t past_chunk = (end + kChunk - 1) / kChunk;
  int32_t chunk = work.tile.first_segment * (kSegmentTokens / kChunk);
  const ChunkCopies<kDims> copies(op, work);
  const auto bring = [&](const T* layer, int32_t next, typename Shared::Chunk(&to)[2]) {
    if (next < past_chunk) copies.Bring(layer, next, to[next % 2]);
    CommitCopies();
  };
  BringQueries(op, work, shared);
  bring(op.kv.k, chunk, shared.keys);
  bring(op.kv.v, chunk, shared.values);

  const int32_t first_row = Warp() * kWarpQueries;
  const ScoreShape shape = {.scale = op.scale,
                            .soft_cap = 0,
                            .window = 0,
                            .bias = nullptr,
                            .bias_stride = 0,
                            .silu_share = 0};
  WarpSums<T, kDims, /*kShaped=*/false> sums(shared.queries + first_row, op.scratch, shape);
  const bool divided = work.tile.record >= 0;
  for (int32_t segment = work.tile.first_segment; segment < work.tile.past_segment; ++segment) {
    const int32_t past = (segment + 1) * (kSegmentTokens / kChunk);
    const bool sees_segment = sums.Sees(segment * kSegmentTokens, kSegmentTokens);
    if (sees_segment) sums.BeginSegment();
    for (; chunk < past && chunk < past_chunk; ++chunk) {
      const int32_t first = chunk * kChunk;
      const bool sees = sums.Sees(first, kChunk), divides = work.Divides(chunk);
      auto& values = shared.values[chunk % 2];
      WaitCopies<1>();
      ShareWithProducts();
      SyncBlock();  // the new keys have arrived, and the previous ones are no longer read
      bring(op.kv.k, chunk + 1, shared.keys);
      float products[kChunk / 2] = {};
      AddGroupScores(shared, shared.keys[chunk % 2], products);
      Scores scores;
      SLUICE_UNROLL
      for (int32_t i = 0; i < kChunk / 2; ++i) scores[i / 4][i % 4] = sees ? products[i] : 0.0f;
      if (sees) sums.Weigh(first, scores);
      WriteWeights(scores, shared);
      WaitCopies<1>();
      if (divides) copies.Clear(values, shared.cleared);
      ShareWithProducts();
      SyncBlock();  // the values have arrived, and the weights are written
      bring(op.kv.v, chunk + 1, shared.values);
      AddGroupValues(shared, values, sums.Elements());
      int32_t cleared = 0;
      for (int32_t warp = 0; divides && warp < kWarps; ++warp) cleared |= shared.cleared[warp];
      if (sees && cleared != 0) AddClearedValues(op, work, first, scores, sums);
    }
    if (sees_segment) FinishSegment(args, work, segment, first_row, divided, sums);
  }
  WaitCopies<0>();
  if (divided) return;
  SyncBlock();  // the queries are no longer read
  sums.ClearSigns();
  FinishRows<true>(op, work, shared, sums);
}

#endif  // SLUICE_HAS_PRODUCTS

template <int32_t kDims>
__global__ void __launch_bounds__(kThreads)
    HopperAttentionKernel(AttentionKernelArgs<BFloat16> args) {
#ifdef SLUICE_HAS_PRODUCTS
  auto& shared = SharedMemory<HopperAttentionShared<kDims>>();
  const AttentionTiles& tiles = args.op.tiles;
  const int32_t kv_heads = args.op.kv.kv_heads;
  const int32_t items = (tiles.counts->wide + tiles.counts->narrow) * kv_heads;
  int32_t item = BlockIndex();
  while (item < items) {
    SyncBlock();
    if (ThreadIndex() == 0) shared.next = TakeWork(tiles.taken, items);
    Attend(args, WorkOf<false>(args.op, tiles.tiles[item / kv_heads], item % kv_heads), shared);
    SyncBlock();
    item = shared.next;
  }
#endif
}

template <int32_t kDims>
const Kernel kHopperAttention = KernelOf("HopperAttention", &HopperAttentionKernel<kDims>);

}  // namespace

int32_t HopperAttentionSharedBytes(int32_t head_dim) {
  return head_dim <= 64 ? sizeof(HopperAttentionShared<64>) : sizeof(HopperAttentionShared<128>);
}

void AttentionOnHopper(Stream& stream, const AttentionArgs<BFloat16>& args) {
  const int32_t dim = args.kv.head_dim;
  SLUICE_CHECK(dim >= 1 && dim <= kMaxHopperHeadDim && !args.shaped());
  SLUICE_CHECK(args.q_heads % args.kv.kv_heads == 0 && RowsAreAligned(args));
  const AttentionKernelArgs<BFloat16> kernel_args = KernelArgsOf(stream, args);
  const Kernel& kernel = dim <= 64 ? kHopperAttention<64> : kHopperAttention<128>;
  const int64_t items = int64_t{args.tiles.capacity} * args.kv.kv_heads;
  Launch(stream, kernel,
         {PersistentBlocks(stream, items, kAttentionBlocks), kThreads,
          HopperAttentionSharedBytes(dim)},
         kernel_args);
  MergeAttention(stream, kernel_args);
}

}  // namespace sluice::kernels::cuda
