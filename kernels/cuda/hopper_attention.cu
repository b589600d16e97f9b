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

constexpr int32_t kChunk = ChunkKeys(kMaxHopperHeadDim);
constexpr int32_t kPieceKeys = kChunk / 2;

// Keys and values pass through a ring of pieces: for each chunk the pieces of its keys, then the
// pieces of its values.
template <int32_t kMaxDims>
struct HopperAttentionShared {
  static constexpr int32_t kDims = kMaxDims, kSlots = 4, kPieces = kChunk / kPieceKeys;
  using Piece = Lines<kPieceKeys, kDims>;

  union {  // The rows that are written reuse the memory of the queries.
    Lines<kTileQueries, kDims> lines;
    alignas(kCopyBytes) T rows[kTileQueries * kDims];
  };
  Piece ring[kSlots];
  Lines<kTileQueries, kChunk> weights;
  QueryPlace queries[kTileQueries];
  int32_t cleared[kPieces][kWarps];  // whether a thread of the warp has cleared values of the piece
  int32_t next;                      // work of the block
};

#ifdef SLUICE_HAS_PRODUCTS

// Brings the pieces of keys and values of a tile through the ring. A thread copies and clears the
// same 16 bytes of several positions of each page.
template <typename Shared>
class PieceCopies {
 public:
  using Piece = typename Shared::Piece;

  __device__ PieceCopies(const AttentionArgs<T>& args, const AttentionWork& work, Shared& shared)
      : args_(args),
        work_(work),
        shared_(shared),
        key_(ThreadIndex() / kPerRow),
        column_(ThreadIndex() % kPerRow * kMatrix),
        chunk_(work.tile.first_segment * (kSegmentTokens / kChunk)) {
    const int32_t keys = work.tile.past_segment * kSegmentTokens;
    const int32_t end = keys < work.tile.context ? keys : work.tile.context;
    past_chunk_ = (end + kChunk - 1) / kChunk;
  }

  // Requests the first pieces. Earlier requested copies join the group of the first one.
  __device__ void Begin() {
    for (int32_t i = 0; i < Shared::kSlots - 1; ++i) Request();
  }
  // Returns the next piece after it has arrived for the calling thread. Request must follow once
  // all threads have passed a barrier.
  __device__ Piece& Take() {
    WaitCopies<Shared::kSlots - 2>();
    Piece& piece = shared_.ring[taken_];
    taken_ = (taken_ + 1) % Shared::kSlots;
    return piece;
  }

  // Requests the piece after the last requested one, if there is one, as a group of copies.
  __device__ void Request() {
    if (chunk_ < past_chunk_) {
      const bool values = part_ >= Shared::kPieces;
      const int32_t piece = values ? part_ - Shared::kPieces : part_;
      Bring(values ? args_.kv.v : args_.kv.k, chunk_ * kChunk + piece * kPieceKeys,
            shared_.ring[requested_]);
      requested_ = (requested_ + 1) % Shared::kSlots;
      if (++part_ == 2 * Shared::kPieces) {
        part_ = 0;
        ++chunk_;
      }
    }
    CommitCopies();
  }

  // Replaces values that are not finite by zeros and notes whether there were any. Each thread
  // handles the values that it has copied.
  __device__ void Clear(Piece& values, int32_t* cleared) const {
    bool found = false;
    SLUICE_ROLLED
    for (int32_t key = key_; key < kPieceKeys; key += kRows) {
      if (ClearValues(values.Place(key, column_))) found = true;
    }
    NoteCleared(found, cleared);
  }

 private:
  static constexpr int32_t kPerRow = Shared::kDims / kMatrix;
  static constexpr int32_t kRows = kThreads / kPerRow;  // rows that the block copies at a time
  static_assert(kRows >= 1 && kPageTokens % kRows == 0);

  // Positions that the tile does not see become zeros.
  __device__ void Bring(const T* layer, int32_t first, Piece& to) const {
    const int32_t left = args_.kv.head_dim - column_;
    SLUICE_UNROLL
    for (int32_t page = 0; page < kPieceKeys / kPageTokens; ++page) {
      const int32_t position = first + page * kPageTokens;
      const int32_t seen = work_.tile.context - position;
      int32_t slot = 0;
      if (seen > 0) {
        slot = args_.pages[work_.sequence.pages_offset + position / kPageTokens] * kPageTokens;
      }
      SLUICE_UNROLL
      for (int32_t k = key_; k < key_ + kPageTokens; k += kRows) {
        cuda::Bring<T, true>(to.Place(page * kPageTokens + k, column_),
                             args_.kv.Row(layer, slot + k, work_.kv_head).At(column_), layer,
                             k < seen ? left : 0);
      }
    }
  }

  const AttentionArgs<T>& args_;
  const AttentionWork& work_;
  Shared& shared_;
  const int32_t key_, column_;             // the first element of a page that the thread copies
  int32_t chunk_, past_chunk_, part_ = 0;  // of the next request
  int32_t requested_ = 0, taken_ = 0;      // slots
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

// Queues the addition of q . k for the keys of a piece.
template <typename Shared>
__device__ void QueueScores(const Shared& shared, const typename Shared::Piece& keys,
                            float (&scores)[kPieceKeys / 2]) {
  BeginProducts();
  SLUICE_UNROLL
  for (int32_t block = 0; block < Shared::kDims / kMatrix; block += kGroupDepth / kMatrix) {
    MultiplyAddGroup<kPieceKeys, GroupOrder::kByColumns>(
        scores, {shared.lines.at[0][block], kMatrixBytes, shared.lines.Across()},
        {keys.at[0][block], kMatrixBytes, keys.Across()});
  }
  CommitProducts();
}

// Queues the addition of the weighted values of piece `piece` of a chunk.
template <typename Shared>
__device__ void QueueValues(const Shared& shared, const typename Shared::Piece& values,
                            int32_t piece, float (&sums)[Shared::kDims / 2]) {
  BeginProducts();
  SLUICE_UNROLL
  for (int32_t block = 0; block < kPieceKeys / kMatrix; block += kGroupDepth / kMatrix) {
    MultiplyAddGroup<Shared::kDims>(sums,
                                    {shared.weights.at[0][piece * (kPieceKeys / kMatrix) + block],
                                     kMatrixBytes, shared.weights.Across()},
                                    {values.at[block][0], values.Across(), kMatrixBytes});
  }
  CommitProducts();
}

// Writes the weights of the warp's queries, rounded.
template <typename Shared>
__device__ void WriteWeights(const Weights<T, kChunk>& weights, Shared& shared) {
  SLUICE_UNROLL
  for (int32_t n = 0; n < kChunk / 8; ++n) {
    SLUICE_UNROLL
    for (int32_t i = 0; i < 2; ++i) {
      const int32_t query = Warp() * kWarpQueries + Lane() / 4 + 8 * i;
      *reinterpret_cast<uint32_t*>(shared.weights.Place(query, n * 8 + Lane() % 4 * 2)) =
          weights.at[n / 2][0].at[n % 2 * 2 + i];
    }
  }
}

template <typename Shared>
__device__ void Attend(const AttentionKernelArgs<T>& args, const AttentionWork& work,
                       Shared& shared) {
  constexpr int32_t kDims = Shared::kDims;
  const AttentionArgs<T>& op = args.op;
  const int32_t seen = work.tile.past_segment * kSegmentTokens;
  const int32_t end = seen < work.tile.context ? seen : work.tile.context;
  const int32_t past_chunk = (end + kChunk - 1) / kChunk;
  int32_t chunk = work.tile.first_segment * (kSegmentTokens / kChunk);
  PieceCopies<Shared> copies(op, work, shared);
  BringQueries(op, work, shared);
  copies.Begin();

  const int32_t first_row = Warp() * kWarpQueries;
  const ScoreShape shape = {.scale = op.scale,
                            .soft_cap = 0,
                            .window = 0,
                            .bias = nullptr,
                            .bias_stride = 0,
                            .silu_share = 0};
  float* const totals = op.scratch + int64_t{BlockIndex()} * (kDims / 2) * kThreads + ThreadIndex();
  WarpSums<T, kDims, /*kShaped=*/false> sums(shared.queries + first_row, totals, kThreads, shape);
  const bool divided = work.tile.record >= 0;
  for (int32_t segment = work.tile.first_segment; segment < work.tile.past_segment; ++segment) {
    const int32_t past = (segment + 1) * (kSegmentTokens / kChunk);
    const bool sees_segment = sums.Sees(segment * kSegmentTokens, kSegmentTokens);
    if (sees_segment) sums.BeginSegment();
    for (; chunk < past && chunk < past_chunk; ++chunk) {
      const int32_t first = chunk * kChunk;
      const bool sees = sums.Sees(first, kChunk), divides = work.Divides(first, first + kChunk);
      Scores<kChunk> scores;
      SLUICE_UNROLL
      for (int32_t piece = 0; piece < Shared::kPieces; ++piece) {
        const auto& keys = copies.Take();
        ShareWithProducts();
        SyncBlock();       // the piece has arrived, and the piece before it is no longer read
        copies.Request();  // not while products are queued: its branches would serialise them
        float products[kPieceKeys / 2] = {};
        QueueScores(shared, keys, products);
        WaitProducts<0>(products);
        SLUICE_UNROLL
        for (int32_t i = 0; i < kPieceKeys / 2; ++i) {
          scores[piece * (kPieceKeys / 8) + i / 4][i % 4] = sees ? products[i] : 0.0f;
        }
      }
      if (sees) sums.Weigh(first, scores);
      Weights<T, kChunk> weights;
      SLUICE_UNROLL
      for (int32_t n = 0; n < kChunk / 8; n += 2) weights.Set(n / 2, &scores[n]);
      WriteWeights(weights, shared);
      int32_t cleared = 0;
      SLUICE_UNROLL
      for (int32_t piece = 0; piece < Shared::kPieces; ++piece) {
        auto& values = copies.Take();
        if (divides) copies.Clear(values, shared.cleared[piece]);
        ShareWithProducts();
        SyncBlock();  // the values have arrived, and the weights are written
        copies.Request();
        QueueValues(shared, values, piece, sums.Elements());
        WaitProducts<0>(sums.Elements());
        for (int32_t w = 0; divides && w < kWarps; ++w) cleared |= shared.cleared[piece][w];
      }
      if (sees && cleared != 0) sums.AddCleared(weights, first, ClearedValuesOf(op, work));
    }
    if (sees_segment) FinishSegment(args, work, segment, first_row, divided, sums);
  }
  WaitCopies<0>();
  if (divided) return;
  SyncBlock();  // the queries are no longer read
  sums.ClearSigns();
  FinishRows<true, kDims>(op, work, shared.queries + first_row, shared.rows + first_row * kDims,
                          sums);
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
