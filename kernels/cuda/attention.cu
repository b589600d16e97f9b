#include "kernels/cuda/attention.h"

#include <cmath>

#include "base/check.h"
#include "kernels/cuda/attention_sums.h"
#include "kernels/cuda/bring.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/vector.h"
#include "kernels/cuda/xsa_math.h"
#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int32_t kThreads = kAttentionThreads, kWarps = kThreads / kWarp;
constexpr int32_t kSegment = kSegmentTokens;

// Keys and values pass through a ring of pieces: those of kKeys positions, or, where each warp
// works on a tile of its own, those of kPageTokens positions in the warp's part of the ring. All
// have the same sums.
template <typename T, int32_t kMaxDims, int32_t kKeys, int32_t kRing>
struct AttentionShared {
  static constexpr int32_t kDims = kMaxDims;
  static constexpr int32_t kPieceKeys = kKeys;
  static constexpr int32_t kSlots = kRing;
  // The warps with a part of the ring, each of which may work alone. Where heads are wide, blocks
  // take one tile at a time: the code of both ways would leave too few registers.
  static constexpr int32_t kTeams = kDims <= 128 ? kPieceKeys / kPageTokens : 1;
  static constexpr int32_t kStride = kDims + kCopyElements<T>;

  alignas(kCopyBytes) T q[kTileQueries][kStride];
  alignas(kCopyBytes) T ring[kSlots * kPieceKeys][kStride];
  QueryPlace queries[kTileQueries];
  int32_t cleared[kWarps];  // whether a thread of the warp has cleared values of the piece
  int32_t next;             // work of the block
};

template <typename T>
struct KernelArgs {
  AttentionArgs<T> op;
  float* records;  // behind the totals of blocks
  int32_t record_stride;
};

// The floats of scratch memory in which the blocks keep merged segments.
int64_t TotalFloats(int32_t head_dim, int64_t blocks) {
  if (head_dim <= kMostRegisterDims) return 0;
  return blocks * kTileQueries * (head_dim <= 128 ? 128 : kMaxHeadDim);
}
int64_t RecordStride(int32_t head_dim) { return CeilDiv(head_dim, 8) * 8 + kRecordTail; }

// A tile, or a part of it, with one KV head.
struct Work {
  AttentionTile tile;
  AttentionSequence sequence;
  int32_t queries;  // of the tile
  int32_t kv_head;
  int32_t common;        // the number of positions before which all queries see
  int32_t lowest = 0;    // the first position that a query sees
  int32_t all_from = 0;  // the position from which on all queries' windows have begun

  // Returns whether some queries see positions of the chunk that others do not.
  __device__ bool Divides(int32_t chunk) const {
    if (chunk * kChunk < all_from) return true;
    return common < tile.context && common < (chunk + 1) * kChunk;
  }
  __device__ int32_t Segments() const { return (tile.context + kSegment - 1) / kSegment; }
};

template <bool kShaped, typename T>
__device__ Work WorkOf(const AttentionArgs<T>& args, const AttentionTile& tile, int32_t kv_head) {
  const int32_t group = args.q_heads / args.kv.kv_heads;
  Work work = {tile, args.sequences[tile.sequence], 0, kv_head, tile.context};
  const int32_t left = work.sequence.count * group - tile.first;
  work.queries = left < kTileQueries ? left : kTileQueries;
  const int32_t first = work.sequence.first_position + tile.first / group;
  if (args.causal) work.common = first + 1;
  if (kShaped && args.window != 0) {
    const int32_t last = work.sequence.first_position + (tile.first + work.queries - 1) / group;
    work.lowest = FirstKey(first, args.window);
    work.all_from = FirstKey(last, args.window);
    const int32_t past = last + args.window;
    if (past < work.tile.context) work.tile.context = past;
    if (!args.causal && first + args.window < work.common) work.common = first + args.window;
  }
  return work;
}

template <bool kShaped, typename T>
__device__ QueryPlace PlaceOf(const AttentionArgs<T>& args, const Work& work, int32_t query) {
  if (query >= work.queries) return {0, 0, 0, 0};
  const int32_t group = args.q_heads / args.kv.kv_heads, packed = work.tile.first + query;
  const int32_t row = packed / group, position = work.sequence.first_position + row;
  int32_t visible = args.causal ? position + 1 : work.tile.context;
  if (kShaped && args.window != 0 && position + args.window < visible) {
    visible = position + args.window;
  }
  return {args.rows[work.sequence.rows_offset + row], work.kv_head * group + packed % group,
          position, visible};
}

// Returns the index of the first feature of a position's key and value.
template <typename T>
__device__ int64_t OffsetOf(const AttentionArgs<T>& args, const Work& work, int32_t position) {
  const int32_t page = args.pages[work.sequence.pages_offset + position / kPageTokens];
  return args.kv.Offset(page * kPageTokens + position % kPageTokens, work.kv_head);
}

// The threads that work on a tile: those of the block, or of one warp.
template <typename Shared, bool kBlock>
struct Team {
  static constexpr int32_t kThreads = kBlock ? cuda::kThreads : kWarp;
  static constexpr int32_t kQueries = kThreads / kWarp * kWarpQueries;
  static constexpr int32_t kPieceKeys = kBlock ? Shared::kPieceKeys : kPageTokens;
  static constexpr int32_t kPieces = kChunk / kPieceKeys;  // of a chunk's keys, and of its values

  __device__ static int32_t Thread() { return kBlock ? ThreadIndex() : Lane(); }
  __device__ static int32_t FirstWarp() { return kBlock ? 0 : Warp(); }
  __device__ static int32_t FirstQuery() { return FirstWarp() * kWarpQueries; }  // of shared memory
  __device__ static void Sync() {
    if constexpr (kBlock) {
      SyncBlock();
    } else {
      SyncWarp();
    }
  }
};

// The pieces of keys and values that a team reads, in order: for each chunk the pieces of its keys,
// then those of its values.
template <typename T, bool kAsync, bool kShaped, typename Shared, typename Team>
class Pieces {
 public:
  using Rows = const T (*)[Shared::kStride];

  __device__ Pieces(const AttentionArgs<T>& args, const Work& work, Shared& shared)
      : args_(args),
        work_(work),
        shared_(shared),
        key_(Team::Thread() / kPerRow),
        column_(Team::Thread() % kPerRow * kCopyElements<T>),
        chunk_(work.tile.first_segment * (kSegment / kChunk)) {
    const int32_t left = (args.kv.head_dim - column_) * static_cast<int32_t>(sizeof(T));
    bytes_ = left < 0 ? 0 : left < kCopyBytes ? left : kCopyBytes;
    const int32_t keys = work.tile.past_segment * kSegment;
    const int32_t end = keys < work.tile.context ? keys : work.tile.context;
    past_chunk_ = (end + kChunk - 1) / kChunk;
    if (kShaped && chunk_ < work.lowest / kChunk) chunk_ = work.lowest / kChunk;
  }

  // Requests the first pieces, and what was requested before with the first of them.
  __device__ void Begin() {
    SLUICE_ROLLED
    for (int32_t i = 0; i < Shared::kSlots - 1; ++i) Request();
  }

  // Returns the rows of the next piece, which stay until the next call. With `clear`, values that
  // are not finite are replaced by zeros.
  __device__ Rows Next(bool clear) {
    T(*const rows)[Shared::kStride] = Slot(taken_);
    taken_ = taken_ + 1 == Shared::kSlots ? 0 : taken_ + 1;
    WaitCopies<Shared::kSlots - 2>();
    if (clear) Clear(rows);
    Team::Sync();
    Request();
    return rows;
  }

 private:
  static constexpr int32_t kPerRow = Shared::kDims / kCopyElements<T>;
  static constexpr int32_t kRows = Team::kThreads / kPerRow;  // that the team copies at a time
  static_assert(kRows >= 1 && kPageTokens % kRows == 0);

  __device__ T (*Slot(int32_t slot))[Shared::kStride] {
    return &shared_
                .ring[Team::FirstWarp() * Shared::kSlots * kPageTokens + slot * Team::kPieceKeys];
  }

  // Requests the piece behind the last one, if there is one, as a group of copies.
  __device__ void Request() {
    if (chunk_ < past_chunk_) {
      const bool values = part_ >= Team::kPieces;
      const int32_t piece = values ? part_ - Team::kPieces : part_;
      Bring(values ? args_.kv.v : args_.kv.k, chunk_ * kChunk + piece * Team::kPieceKeys,
            Slot(requested_));
      requested_ = requested_ + 1 == Shared::kSlots ? 0 : requested_ + 1;
      if (++part_ == 2 * Team::kPieces) {
        part_ = 0;
        ++chunk_;
      }
    }
    CommitCopies();
  }

  // Positions that the tile does not see become zeros.
  __device__ void Bring(const T* layer, int32_t first, T (*to)[Shared::kStride]) {
    const int32_t dim = args_.kv.head_dim;
    SLUICE_UNROLL
    for (int32_t page = 0; page < Team::kPieceKeys / kPageTokens; ++page) {
      const int32_t position = first + page * kPageTokens;
      int32_t seen = work_.tile.context - position;  // positions of the page
      // A page before all windows may belong to another sequence by now.
      if (kShaped && position + kPageTokens <= work_.lowest) seen = 0;
      const T* from = layer;
      if (seen > 0) {
        const int32_t id = args_.pages[work_.sequence.pages_offset + position / kPageTokens];
        from += args_.kv.PageOffset(id, work_.kv_head);
      }
      T* const place = &to[page * kPageTokens + key_][column_];
      if (kAsync && seen >= kPageTokens) {
        const T* row = from + key_ * dim + (bytes_ > 0 ? column_ : 0);
        SLUICE_UNROLL
        for (int32_t k = 0; k < kPageTokens; k += kRows, row += kRows * dim) {
          CopyAsync(place + k * Shared::kStride, row, bytes_);
        }
      } else {
        SLUICE_ROLLED
        for (int32_t k = 0; k < kPageTokens; k += kRows) {
          const int32_t count = key_ + k < seen ? dim - column_ : 0;
          cuda::Bring<T, kAsync>(place + k * Shared::kStride, from + (key_ + k) * dim + column_,
                                 layer, count);
        }
      }
    }
  }

  // Replaces values that are not finite by zeros and notes whether there were any. Even with a
  // weight of 0 they would reach the queries that do not see them. Each thread treats the values
  // that it has brought.
  __device__ void Clear(T (*rows)[Shared::kStride]) {
    bool found = false;
    SLUICE_ROLLED
    for (int32_t page = 0; page < Team::kPieceKeys / kPageTokens; ++page) {
      SLUICE_ROLLED
      for (int32_t k = 0; k < kPageTokens; k += kRows) {
        T* const place = &rows[page * kPageTokens + key_ + k][column_];
        auto values = LoadWhole<Pack<T>>(place);
        bool finite = true;
        SLUICE_UNROLL
        for (int32_t d = 0; d < kCopyElements<T>; ++d) {
          if (IsFinite(values.at[d])) continue;
          values.at[d] = Narrow<T>(0.0f);
          finite = false;
        }
        if (finite) continue;
        StoreWhole(values, place);
        found = true;
      }
    }
    const bool any = Ballot(found) != 0;
    if (Lane() == 0) shared_.cleared[Warp()] = any;
  }

  const AttentionArgs<T>& args_;
  const Work& work_;
  Shared& shared_;
  const int32_t key_, column_;             // the first element of a page that the thread copies
  int32_t bytes_;                          // of a copy
  int32_t chunk_, past_chunk_, part_ = 0;  // of the next request
  int32_t requested_ = 0, taken_ = 0;      // slots
};

// The value of a position, which XSA excludes, as lanes hold it: kEach features each.
template <int32_t kEach>
struct OwnValue {
  int32_t position = -1;
  Floats<kEach> v;
  float square;  // v . v
};

template <int32_t kEach>
__device__ float Dot(const Floats<kEach>& a, const Floats<kEach>& b) {
  float sum = 0;
  SLUICE_UNROLL
  for (int32_t j = 0; j < kEach; ++j) sum = fmaf(a.at[j], b.at[j], sum);
  return LaneReduce(sum, Plus());
}

// Reads this lane's features of a row; zeros stand for those that it lacks.
template <bool kAligned, int32_t kEach, typename T>
__device__ Floats<kEach> ReadRow(const T* row, int32_t dim) {
  const int32_t first = Lane() * kEach;
  if constexpr (kAligned) {
    if (first < dim) return Load<kEach>(row + first);
    return {};
  } else {
    Floats<kEach> values = {};
    SLUICE_UNROLL
    for (int32_t j = 0; j < kEach; ++j) {
      if (first + j < dim) values.at[j] = Widen(row[first + j]);
    }
    return values;
  }
}

// Divides the sums y of a query by that of its weights, excludes the own value and writes the row.
// `own` is that of a query of the same sequence and KV head.
template <bool kAligned, int32_t kEach, typename T>
__device__ void FinishRow(const AttentionArgs<T>& args, const Work& work, const QueryPlace& query,
                          Floats<kEach> y, float sum, OwnValue<kEach>& own) {
  const int32_t dim = args.kv.head_dim, first = Lane() * kEach;
  const int64_t place = int64_t{query.row} * args.q_heads + query.head;
  const float inverse = 1.0f / sum;
  SLUICE_UNROLL
  for (int32_t j = 0; j < kEach; ++j) y.at[j] *= inverse;
  if (args.xsa.form != XsaForm::kOff) {
    if (own.position != query.position) {
      own.position = query.position;
      own.v = ReadRow<kAligned, kEach>(args.kv.v + OffsetOf(args, work, query.position), dim);
      own.square = Dot(own.v, own.v);
    }
    const bool diagnostics = WantsDiagnostics(args.xsa);
    const XsaProducts products = {Dot(y, own.v), own.square, diagnostics ? Dot(y, y) : 0.0f};
    if (diagnostics && Lane() == 0) WriteDiagnostics(args.xsa, products, place);
    const float factor = XsaFactor(args.xsa, products, query.head);
    SLUICE_UNROLL
    for (int32_t j = 0; j < kEach; ++j) y.at[j] -= factor * own.v.at[j];
  }
  T* const out = args.out + place * dim;
  if constexpr (kAligned) {
    if (first < dim) Store<kEach>(y, out + first);
  } else {
    SLUICE_UNROLL
    for (int32_t j = 0; j < kEach; ++j) {
      if (first + j < dim) out[first + j] = Narrow<T>(y.at[j]);
    }
  }
}

// Writes the rows of a warp. The sums pass through the memory of the warp's queries, so that the
// lanes of the warp hold neighbouring features of one row.
template <bool kAsync, typename T, typename Shared, typename Sums>
__device__ void FinishRows(const AttentionArgs<T>& args, const Work& work, Shared& shared,
                           Sums& sums) {
  constexpr int32_t kEach = Shared::kDims / kWarp, kStride = Shared::kDims + 8, kRows = 8;
  static_assert(kRows * kStride * sizeof(float) <= kWarpQueries * sizeof(shared.q[0]));
  auto* const stage = reinterpret_cast<float(*)[kStride]>(&shared.q[Warp() * kWarpQueries]);
  OwnValue<kEach> own;
  SLUICE_UNROLL
  for (int32_t i = 0; i < 2; ++i) {
    SyncWarp();
    sums.Write(i, stage[Lane() / 4]);
    SyncWarp();
    SLUICE_ROLLED
    for (int32_t r = 0; r < kRows; ++r) {
      const float sum = Shuffle(sums.sum(i), 4 * r);
      const auto query =
          LoadWhole<QueryPlace>(&shared.queries[Warp() * kWarpQueries + kRows * i + r]);
      if (query.visible == 0) break;
      FinishRow<kAsync, kEach>(args, work, query, Load<kEach>(&stage[r][Lane() * kEach]), sum, own);
    }
  }
}

// Returns the place of the record of a query's sums over `segment`.
template <typename T>
__device__ float* RecordOf(const KernelArgs<T>& args, const Work& work, int32_t segment,
                           int32_t query) {
  const int64_t index =
      work.tile.record + (int64_t{work.kv_head} * work.Segments() + segment) * work.queries + query;
  return args.records + index * args.record_stride;
}

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

// Does the work by a team: all of the block's threads, or the calling thread's warp.
template <bool kBlock, bool kAsync, bool kShaped, typename T, typename Shared>
__device__ void Attend(const KernelArgs<T>& args, const Work& work, Shared& shared) {
  using Threads = Team<Shared, kBlock>;
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
  if (kShaped && segment < work.lowest / kSegment) segment = work.lowest / kSegment;
  for (; segment < work.tile.past_segment; ++segment) {
    const int32_t past = (segment + 1) * kSegment;
    const int32_t end = past < work.tile.context ? past : work.tile.context;
    const bool sees_segment = sums.Sees(segment * kSegment, kSegment);
    if (sees_segment) sums.BeginSegment();
    int32_t first = segment * kSegment;
    if (kShaped && first < work.lowest) first = work.lowest / kChunk * kChunk;
    for (; first < end; first += kChunk) {
      const bool sees = sums.Sees(first, kChunk), divides = work.Divides(first / kChunk);
      Scores scores = {};
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
      if (sees && cleared != 0) {
        sums.AddCleared(scores, first, work.lowest, work.tile.context, op.kv.head_dim,
                        [&](int32_t position) { return op.kv.v + OffsetOf(op, work, position); });
      }
    }
    if (!sees_segment) continue;
    sums.EndSegment(segment, divided);
    if (!divided) continue;
    for (int32_t i = 0; i < 2; ++i) {
      const int32_t query = (kBlock ? first_row : 0) + Lane() / 4 + 8 * i;
      if (query >= work.queries || !sums.SeesSegment(i, segment)) continue;
      sums.WriteRecord(i, RecordOf(args, work, segment, query), args.record_stride - kRecordTail);
    }
  }
  WaitCopies<0>();
  if (!divided) FinishRows<kAsync>(op, work, shared, sums);
}

// Returns the index of work that no other block takes, behind the first of each block. The last of
// `items` takers sets the counter back.
__device__ inline int32_t TakeWork(int32_t* taken, int32_t items) {
  const int32_t before = AtomicAdd(taken, 1);
  if (before == items - 1) AtomicAdd(taken, -items);
  return GridBlocks() + before;
}

// A block takes a wide tile with a KV head, or, if there are more narrow ones than blocks, a narrow
// one for each warp.
template <typename T, int32_t kDims, int32_t kKeys, int32_t kRing, bool kAsync, bool kShaped>
__global__ void __launch_bounds__(kThreads) AttentionKernel(KernelArgs<T> args) {
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

// Merges the records of the divided tiles, by a warp for each query.
template <typename T, int32_t kDims, bool kAligned, bool kShaped>
__global__ void __launch_bounds__(kThreads) MergeKernel(KernelArgs<T> args) {
  WaitForPrevious();
  constexpr int32_t kEach = kDims / kWarp, kAtOnce = 8;
  const AttentionArgs<T>& op = args.op;
  const int32_t kv_heads = op.kv.kv_heads, dims = args.record_stride - kRecordTail;
  const int32_t items = op.tiles.counts->divided * kv_heads * kTileQueries;
  for (int32_t i = BlockIndex() * kWarps + Warp(); i < items; i += GridBlocks() * kWarps) {
    const int32_t tile = i / kTileQueries / kv_heads, index = i % kTileQueries;
    const Work work = WorkOf<kShaped>(op, op.tiles.tiles[op.tiles.capacity - 1 - tile],
                                      i / kTileQueries % kv_heads);
    if (index >= work.queries) continue;
    const QueryPlace query = PlaceOf<kShaped>(op, work, index);
    const int32_t begin = kShaped ? FirstKey(query.position, op.window) / kSegment : 0;
    const int32_t segments = (query.visible + kSegment - 1) / kSegment - begin;
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

// The kernels for heads of up to kDims features, and the shared memory of the first in bytes.
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

// Returns the variant whose ring is as large as `limit` allows, or the one that fits every GPU.
// Rows that cannot be copied asynchronously do not profit from a large ring.
template <typename T, int32_t kDims, int32_t kKeys, int32_t kRing, int32_t kLeastKeys,
          int32_t kLeastRing>
AttentionVariant VariantFor(int32_t limit, bool aligned, bool shaped) {
  static_assert(sizeof(AttentionShared<T, kDims, kLeastKeys, kLeastRing>) <=
                kSharedBytesOfEveryGpu);
  if (!aligned) return Variant<T, kDims, kLeastKeys, kLeastRing, false>(shaped);
  if (limit >= static_cast<int32_t>(sizeof(AttentionShared<T, kDims, kKeys, kRing>))) {
    return Variant<T, kDims, kKeys, kRing, true>(shaped);
  }
  return Variant<T, kDims, kLeastKeys, kLeastRing, true>(shaped);
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
  const int32_t dim = args.kv.head_dim, limit = stream.shared_bytes_limit();
  SLUICE_CHECK(args.q_heads % args.kv.kv_heads == 0);
  const bool aligned = RowsAligned(args.q, dim) && RowsAligned(args.q, args.q_stride) &&
                       RowsAligned(args.kv.k, dim) && RowsAligned(args.kv.v, dim) &&
                       RowsAligned(args.out, dim);
  const AttentionVariant variant = VariantFor<T>(dim, limit, aligned, args.shaped());
  const int64_t totals = args.tiles.records == 0
                             ? 0
                             : TotalFloats(dim, int64_t{kAttentionBlocks} * stream.processors());
  const KernelArgs<T> kernel_args = {args, args.scratch + totals,
                                     static_cast<int32_t>(RecordStride(dim))};
  const int32_t fit = limit / variant.shared_bytes;
  const int32_t resident = fit < 1 ? 1 : fit < kAttentionBlocks ? fit : kAttentionBlocks;
  const int64_t items = int64_t{args.tiles.capacity} * args.kv.kv_heads;
  Launch(stream, variant.attention,
         {PersistentBlocks(stream, items, resident), kThreads, variant.shared_bytes}, kernel_args);
  if (args.tiles.records == 0) return;
  const int64_t queries = CeilDiv(args.tiles.records, kWarps);
  Launch(stream, variant.merge,
         {.blocks = PersistentBlocks(stream, queries, 4),
          .threads = kThreads,
          .overlaps_previous = true},
         kernel_args);
}

template int32_t AttentionSharedBytes<float>(int32_t, int32_t);
template int32_t AttentionSharedBytes<BFloat16>(int32_t, int32_t);
template void Attention(Stream&, const AttentionArgs<float>&);
template void Attention(Stream&, const AttentionArgs<BFloat16>&);

}  // namespace sluice::kernels::cuda
