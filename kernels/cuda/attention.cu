#include "kernels/cuda/attention.h"

#include <cmath>
#include <type_traits>

#include "base/check.h"
#include "kernels/cuda/bring.h"
#include "kernels/cuda/fragments.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/xsa_math.h"
#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int32_t kThreads = 128, kWarps = kThreads / kWarp;
constexpr int32_t kWarpQueries = kTileQueries / kWarps;  // the rows of a fragment

// How chunks pass through shared memory; the order of all sums is the same.
enum class Staging {
  kTwoChunks,  // the next chunk arrives while one is used
  kOneChunk,
  kHalves,  // the first half of the keys' features, the second one, then those of the values
};

template <typename T, int32_t kMaxDims, Staging kStaging>
struct AttentionShared {
  static constexpr int32_t kDims = kMaxDims;
  static constexpr int32_t kStages = kStaging == Staging::kTwoChunks ? 2 : 1;
  static constexpr int32_t kSlices = kStaging == Staging::kHalves ? 2 : 1;
  static constexpr int32_t kSliceDims = kDims / kSlices;
  static constexpr int32_t kQueryStride = kDims + kCopyElements<T>;
  static constexpr int32_t kStride = kSliceDims + kCopyElements<T>;
  static constexpr int32_t kWeightStride = kChunk + kCopyElements<T>;

  struct Slice {
    alignas(kCopyBytes) T rows[kChunk][kStride];
  };
  struct Both {
    Slice k, v;
  };
  union Either {
    Slice k, v;
  };
  using Chunk = std::conditional_t<kSlices == 1, Both, Either>;

  alignas(kCopyBytes) T q[kTileQueries][kQueryStride];
  Chunk chunks[kStages];
  alignas(kCopyBytes) T weights[kWarps][kWarpQueries][kWeightStride];
  int32_t cleared[kWarps];  // whether the warp has cleared values of the current slice
};

// The work that a block does at a time: a tile's queries of one KV head.
struct Work {
  AttentionSequence sequence;
  int32_t first;    // packed query
  int32_t queries;  // number of queries in the tile, <= kTileQueries
  int32_t kv_head;
  int32_t context;  // number of positions that the last query sees
  int32_t common;   // number of positions that all queries see

  // Returns whether some queries see positions of the chunk that others do not.
  __device__ bool Divides(int32_t chunk) const {
    return common < context && common < (chunk + 1) * kChunk;
  }
};

// The position, head and output of query `i` of the tile.
struct Query {
  int32_t position;
  int32_t head;
  int64_t place;  // row * q_heads + head
  int64_t from;   // the place of its features in q
};

template <typename T>
__device__ Query QueryAt(const AttentionArgs<T>& args, const Work& work, int32_t i) {
  const int32_t group = args.q_heads / args.kv.kv_heads, packed = work.first + i;
  const int32_t head = work.kv_head * group + packed % group;
  const int64_t row = args.rows[work.sequence.rows_offset + packed / group];
  const int64_t place = row * args.q_heads + head;
  const int64_t from = args.q_stride == 0 ? place * args.kv.head_dim
                                          : row * args.q_stride + int64_t{head} * args.kv.head_dim;
  return {work.sequence.first_position + packed / group, head, place, from};
}

// Returns the number of keys that query `i` sees; 0 for a query that the tile does not have.
template <typename T>
__device__ int32_t Visible(const AttentionArgs<T>& args, const Work& work, int32_t i) {
  if (i >= work.queries) return 0;
  if (!args.causal) return work.context;
  const int32_t group = args.q_heads / args.kv.kv_heads;
  return work.sequence.first_position + (work.first + i) / group + 1;
}

template <typename T>
__device__ Work WorkOf(const AttentionArgs<T>& args, int64_t item) {
  const int32_t kv_heads = args.kv.kv_heads, group = args.q_heads / kv_heads;
  const AttentionTile tile = args.tiles.tiles[item / kv_heads];
  Work work = {args.sequences[tile.sequence],         tile.first, 0,
               static_cast<int32_t>(item % kv_heads), 0,          0};
  const int32_t left = work.sequence.count * group - tile.first;
  work.queries = left < kTileQueries ? left : kTileQueries;
  work.context = work.sequence.first_position +
                 (args.causal ? (tile.first + work.queries - 1) / group + 1 : work.sequence.count);
  work.common = Visible(args, work, 0);
  return work;
}

template <typename T>
__device__ bool IsFinite(T value) {
  return fabsf(Widen(value)) < INFINITY;
}

// Returns the index of the first feature of a position's key and value.
template <typename T>
__device__ int64_t OffsetOf(const AttentionArgs<T>& args, const Work& work, int32_t position) {
  const int32_t page = args.pages[work.sequence.pages_offset + position / kPageTokens];
  return args.kv.Offset(page * kPageTokens + position % kPageTokens, work.kv_head);
}

template <typename T, bool kAsync, typename Shared>
__device__ void BringQueries(const AttentionArgs<T>& args, const Work& work, Shared& shared) {
  constexpr int32_t kPerRow = Shared::kDims / kCopyElements<T>;
  const int32_t dim = args.kv.head_dim;
  for (int32_t i = ThreadIndex(); i < kTileQueries * kPerRow; i += kThreads) {
    const int32_t query = i / kPerRow, d = i % kPerRow * kCopyElements<T>;
    const bool live = query < work.queries;
    const T* from = live ? args.q + QueryAt(args, work, query).from + d : args.q;
    Bring<T, kAsync>(&shared.q[query][d], from, args.q, live ? dim - d : 0);
  }
}

// Calls bring(key, d, offset, count) for each copy of this thread into a slice: to row `key` of the
// slice from feature `d` on, from the layer's features from `offset` on, of which `count` exist.
// Positions beyond the context have none.
template <typename Shared, typename T, typename BringFunction>
__device__ void ForEachCopy(const AttentionArgs<T>& args, const Work& work, int32_t chunk,
                            int32_t slice, BringFunction bring) {
  constexpr int32_t kPerRow = Shared::kSliceDims / kCopyElements<T>;
  for (int32_t i = ThreadIndex(); i < kChunk * kPerRow; i += kThreads) {
    const int32_t key = i / kPerRow, d = i % kPerRow * kCopyElements<T>;
    const int32_t position = chunk * kChunk + key, feature = slice * Shared::kSliceDims + d;
    const bool live = position < work.context;
    bring(key, d, live ? OffsetOf(args, work, position) + feature : 0,
          live ? args.kv.head_dim - feature : 0);
  }
}

// Replaces values that are not finite by zeros and notes in `cleared` whether there were any. Even
// with a weight of 0 they would reach the queries that do not see them. Each thread treats the
// values that it has brought.
template <typename T, typename Shared>
__device__ void ClearValues(typename Shared::Slice& v, int32_t (&cleared)[kWarps]) {
  constexpr int32_t kPerRow = Shared::kSliceDims / kCopyElements<T>;
  bool found = false;
  for (int32_t i = ThreadIndex(); i < kChunk * kPerRow; i += kThreads) {
    T* const values = &v.rows[i / kPerRow][i % kPerRow * kCopyElements<T>];
    for (int32_t d = 0; d < kCopyElements<T>; ++d) {
      if (IsFinite(values[d])) continue;
      values[d] = Narrow<T>(0.0f);
      found = true;
    }
  }
  const bool any = Ballot(found) != 0;
  if (Lane() == 0) cleared[Warp()] = any;
}

__device__ inline bool AnyOf(const int32_t (&cleared)[kWarps]) {
  int32_t any = 0;
  for (int32_t warp = 0; warp < kWarps; ++warp) any |= cleared[warp];
  return any != 0;
}

// The running softmax of a warp's queries. Lane l holds rows l / 4 and l / 4 + 8, like fragments.
template <typename T, typename Shared>
class WarpSoftmax {
 public:
  static constexpr int32_t kDims = Shared::kDims;
  using Slice = typename Shared::Slice;

  __device__ WarpSoftmax(const AttentionArgs<T>& args, const Work& work) {
    SLUICE_UNROLL
    for (int32_t i = 0; i < 2; ++i) {
      visible_[i] = Visible(args, work, Warp() * kWarpQueries + Lane() / 4 + 8 * i);
    }
    for (int32_t i = 0; i < kWarpQueries; ++i) {
      const int32_t visible = Visible(args, work, Warp() * kWarpQueries + i);
      most_visible_ = visible > most_visible_ ? visible : most_visible_;
    }
  }

  // Returns whether a row of the warp sees a part of the chunk. If so, the chunk is added by
  // AddScores for each slice of the keys, then Weigh, then AddValues for each slice of the values.
  __device__ bool Sees(int32_t chunk) const { return chunk * kChunk < most_visible_; }

  using Scores = float[kChunk / 8][4];

  __device__ void AddScores(const Shared& shared, int32_t slice, const Slice& k, Scores& scores) {
    SLUICE_UNROLL
    for (int32_t n = 0; n < kChunk / 8; ++n) {
      MultiplyBlock<Shared::kSliceDims, true>(
          &shared.q[Warp() * kWarpQueries][slice * Shared::kSliceDims], Shared::kQueryStride,
          k.rows[n * 8], Shared::kStride, scores[n]);
    }
  }

  // Replaces the scores by the weights exp(s - max), in shared memory as T.
  __device__ void Weigh(const AttentionArgs<T>& args, int32_t chunk, Scores& scores,
                        Shared& shared) {
    T(&weights)[kWarpQueries][Shared::kWeightStride] = shared.weights[Warp()];
    SLUICE_UNROLL
    for (int32_t i = 0; i < 2; ++i) {
      const int32_t visible = visible_[i] - chunk * kChunk;  // columns of this chunk
      float largest = largest_[i];
      ForEachScore(scores, i, [&](int32_t column, float& score) {
        score *= args.scale;
        if (column < visible) largest = fmaxf(largest, score);
      });
      largest = LaneReduce<4>(largest, Max());
      float sum = 0;
      ForEachScore(scores, i, [&](int32_t column, float& score) {
        const float weight = column < visible ? expf(score - largest) : 0.0f;
        weights[Lane() / 4 + 8 * i][column] = Narrow<T>(weight);
        sum += weight;
      });
      sum = LaneReduce<4>(sum, Plus());
      keep_[i] = expf(largest_[i] - largest);
      if (visible > 0) {
        sum_[i] = fmaf(sum_[i], keep_[i], sum);
        largest_[i] = largest;
      }
    }
    SyncWarp();
  }

  __device__ void AddValues(const Shared& shared, int32_t chunk, int32_t slice, const Slice& v) {
    SLUICE_UNROLL
    for (int32_t n = 0; n < Shared::kSliceDims / 8; ++n) {
      float added[4] = {};
      MultiplyBlock<kChunk, false>(shared.weights[Warp()][0], Shared::kWeightStride,
                                   &v.rows[0][n * 8], Shared::kStride, added);
      float(&y)[4] = y_[slice * (Shared::kSliceDims / 8) + n];
      for (int32_t i = 0; i < 4; ++i) {
        // A chunk of which a row sees nothing must not change even the sign of the row's zeros.
        if (chunk * kChunk < visible_[i / 2]) y[i] = fmaf(y[i], keep_[i / 2], added[i]);
      }
    }
    SyncWarp();
  }

  // Adds the values of the chunk that ClearValues has replaced to the rows that see them. This rare
  // path works on a copy in memory, so that it takes no registers from the usual one.
  __device__ void AddCleared(const AttentionArgs<T>& args, const Work& work, const Shared& shared,
                             int32_t chunk) {
    float y[kDims / 8][4];
    SLUICE_UNROLL
    for (int32_t n = 0; n < kDims / 8; ++n) {
      for (int32_t i = 0; i < 4; ++i) y[n][i] = y_[n][i];
    }
    for (int32_t key = 0; key < kChunk && chunk * kChunk + key < most_visible_; ++key) {
      const int32_t position = chunk * kChunk + key;
      const T* const v = args.kv.v + OffsetOf(args, work, position);
      for (int32_t d = 0; d < args.kv.head_dim; ++d) {
        if (d % 8 / 2 != Lane() % 4 || IsFinite(v[d])) continue;
        for (int32_t i = 0; i < 2; ++i) {
          if (position >= visible_[i]) continue;
          const float weight = Widen(shared.weights[Warp()][Lane() / 4 + 8 * i][key]);
          float& sum = y[d / 8][2 * i + d % 2];
          sum = fmaf(weight, Widen(v[d]), sum);
        }
      }
    }
    SLUICE_UNROLL
    for (int32_t n = 0; n < kDims / 8; ++n) {
      for (int32_t i = 0; i < 4; ++i) y_[n][i] = y[n][i];
    }
  }

  // Calls f(feature, y) for each element of this lane's row `i` (0 or 1).
  template <typename Function>
  __device__ void ForEach(int32_t i, Function f) {
    SLUICE_UNROLL
    for (int32_t n = 0; n < kDims / 8; ++n) {
      for (int32_t j = 0; j < 2; ++j) f(n * 8 + Lane() % 4 * 2 + j, y_[n][2 * i + j]);
    }
  }

  // Divides by the sums of the weights, so that y becomes attention's output.
  __device__ void Finish() {
    SLUICE_UNROLL
    for (int32_t i = 0; i < 2; ++i) {
      const float sum = sum_[i];
      ForEach(i, [sum](int32_t, float& y) { y /= sum; });
    }
  }

 private:
  template <typename Function>
  __device__ void ForEachScore(Scores& scores, int32_t i, Function f) {
    SLUICE_UNROLL
    for (int32_t n = 0; n < kChunk / 8; ++n) {
      for (int32_t j = 0; j < 2; ++j) f(n * 8 + Lane() % 4 * 2 + j, scores[n][2 * i + j]);
    }
  }

  int32_t visible_[2];
  int32_t most_visible_ = 0;  // of the warp's rows
  float largest_[2] = {-INFINITY, -INFINITY};
  float sum_[2] = {};
  float keep_[2];  // the factors of the sums before the chunk that is being added
  float y_[kDims / 8][4] = {};
};

// Excludes the own value from row `i` of this lane and writes the row.
template <typename T, typename Softmax>
__device__ void WriteRow(const AttentionArgs<T>& args, const Work& work, int32_t i,
                         Softmax& softmax) {
  const int32_t index = Warp() * kWarpQueries + Lane() / 4 + 8 * i, dim = args.kv.head_dim;
  const bool live = index < work.queries;
  const Query query = live ? QueryAt(args, work, index) : Query{};
  const T* const own = args.kv.v + (live ? OffsetOf(args, work, query.position) : 0);
  const auto value = [&](int32_t d) { return live && d < dim ? Widen(own[d]) : 0.0f; };
  float factor = 0;
  if (args.xsa.form != XsaForm::kOff) {
    XsaProducts products = {};
    softmax.ForEach(i, [&](int32_t d, float y) {
      products.yv = fmaf(y, value(d), products.yv);
      products.vv = fmaf(value(d), value(d), products.vv);
      products.yy = fmaf(y, y, products.yy);
    });
    products.yv = LaneReduce<4>(products.yv, Plus());
    products.vv = LaneReduce<4>(products.vv, Plus());
    products.yy = LaneReduce<4>(products.yy, Plus());
    if (live) factor = XsaFactor(args.xsa, products, query.head);
    if (live && Lane() % 4 == 0) WriteDiagnostics(args.xsa, products, query.place);
  }
  if (!live) return;
  softmax.ForEach(i, [&](int32_t d, float y) {
    if (d >= dim) return;
    if (args.xsa.form != XsaForm::kOff) y -= factor * value(d);
    args.out[query.place * dim + d] = Narrow<T>(y);
  });
}

// Adds all chunks, each as a whole.
template <typename T, bool kAsync, typename Shared, typename Softmax>
__device__ void AddByChunks(const AttentionArgs<T>& args, const Work& work, Shared& shared,
                            Softmax& softmax) {
  constexpr int32_t kStages = Shared::kStages, kAhead = kStages - 1;
  const int32_t chunks = (work.context + kChunk - 1) / kChunk;
  const auto bring = [&](int32_t chunk) {
    typename Shared::Chunk& to = shared.chunks[chunk % kStages];
    ForEachCopy<Shared>(
        args, work, chunk, 0, [&](int32_t key, int32_t d, int64_t offset, int32_t count) {
          Bring<T, kAsync>(&to.k.rows[key][d], args.kv.k + offset, args.kv.k, count);
          Bring<T, kAsync>(&to.v.rows[key][d], args.kv.v + offset, args.kv.v, count);
        });
  };
  for (int32_t chunk = 0; chunk < kAhead; ++chunk) {
    if (chunk < chunks) bring(chunk);
    CommitCopies();
  }
  for (int32_t chunk = 0; chunk < chunks; ++chunk) {
    if (chunk + kAhead < chunks) bring(chunk + kAhead);
    CommitCopies();
    WaitCopies<kAhead>();
    typename Shared::Chunk& kv = shared.chunks[chunk % kStages];
    const bool divided = work.Divides(chunk);
    if (divided) ClearValues<T, Shared>(kv.v, shared.cleared);
    SyncBlock();
    if (softmax.Sees(chunk)) {
      typename Softmax::Scores scores = {};
      softmax.AddScores(shared, 0, kv.k, scores);
      softmax.Weigh(args, chunk, scores, shared);
      softmax.AddValues(shared, chunk, 0, kv.v);
      if (divided && AnyOf(shared.cleared)) softmax.AddCleared(args, work, shared, chunk);
    }
    SyncBlock();  // the chunk's memory may be filled again
  }
}

// Adds all chunks, each slice by slice.
template <typename T, bool kAsync, typename Shared, typename Softmax>
__device__ void AddBySlices(const AttentionArgs<T>& args, const Work& work, Shared& shared,
                            Softmax& softmax) {
  const auto bring = [&](const T* layer, int32_t chunk, int32_t slice, typename Shared::Slice& to) {
    ForEachCopy<Shared>(args, work, chunk, slice,
                        [&](int32_t key, int32_t d, int64_t offset, int32_t count) {
                          Bring<T, kAsync>(&to.rows[key][d], layer + offset, layer, count);
                        });
    CommitCopies();
    WaitCopies<0>();
  };
  typename Shared::Chunk& kv = shared.chunks[0];
  for (int32_t chunk = 0; chunk * kChunk < work.context; ++chunk) {
    const bool divided = work.Divides(chunk);
    typename Softmax::Scores scores = {};
    for (int32_t slice = 0; slice < Shared::kSlices; ++slice) {
      bring(args.kv.k, chunk, slice, kv.k);
      SyncBlock();
      if (softmax.Sees(chunk)) softmax.AddScores(shared, slice, kv.k, scores);
      SyncBlock();
    }
    if (softmax.Sees(chunk)) softmax.Weigh(args, chunk, scores, shared);
    bool cleared = false;
    SLUICE_UNROLL
    for (int32_t slice = 0; slice < Shared::kSlices; ++slice) {
      bring(args.kv.v, chunk, slice, kv.v);
      if (divided) ClearValues<T, Shared>(kv.v, shared.cleared);
      SyncBlock();
      cleared = cleared || (divided && AnyOf(shared.cleared));
      if (softmax.Sees(chunk)) softmax.AddValues(shared, chunk, slice, kv.v);
      SyncBlock();
    }
    if (cleared && softmax.Sees(chunk)) softmax.AddCleared(args, work, shared, chunk);
  }
}

template <typename T, int32_t kDims, Staging kStaging, bool kAsync>
__device__ void Attend(const AttentionArgs<T>& args, const Work& work,
                       AttentionShared<T, kDims, kStaging>& shared) {
  BringQueries<T, kAsync>(args, work, shared);
  WarpSoftmax<T, AttentionShared<T, kDims, kStaging>> softmax(args, work);
  if constexpr (kStaging == Staging::kHalves) {
    AddBySlices<T, kAsync>(args, work, shared, softmax);
  } else {
    AddByChunks<T, kAsync>(args, work, shared, softmax);
  }
  softmax.Finish();
  SLUICE_UNROLL
  for (int32_t i = 0; i < 2; ++i) WriteRow(args, work, i, softmax);
}

template <typename T, int32_t kDims, Staging kStaging, bool kAsync>
__global__ void __launch_bounds__(kThreads) AttentionKernel(AttentionArgs<T> args) {
  auto& shared = SharedMemory<AttentionShared<T, kDims, kStaging>>();
  const int64_t items = int64_t{*args.tiles.count} * args.kv.kv_heads;
  for (int64_t item = BlockIndex(); item < items; item += GridBlocks()) {
    Attend<T, kDims, kStaging, kAsync>(args, WorkOf(args, item), shared);
  }
}

template <typename T, int32_t kDims, Staging kStaging, bool kAsync>
const Kernel kAttention = KernelOf(kAsync ? "Attention" : "AttentionUnaligned",
                                   &AttentionKernel<T, kDims, kStaging, kAsync>);

// The kernel for heads of up to kDims features, and its shared memory in bytes.
struct AttentionVariant {
  const Kernel& kernel;
  int32_t shared_bytes;
};

// Returns the first variant, from kStaging on, whose shared memory is within `limit`, or the last
// one. The first that fits every GPU is the last.
template <typename T, int32_t kDims, Staging kStaging = Staging::kTwoChunks>
AttentionVariant VariantFor(int32_t limit, bool aligned) {
  constexpr int32_t kBytes = sizeof(AttentionShared<T, kDims, kStaging>);
  if constexpr (kBytes > kSharedBytesOfEveryGpu) {
    constexpr Staging kNext =
        kStaging == Staging::kTwoChunks ? Staging::kOneChunk : Staging::kHalves;
    static_assert(kNext != kStaging);
    if (kBytes > limit) return VariantFor<T, kDims, kNext>(limit, aligned);
  }
  return {aligned ? kAttention<T, kDims, kStaging, true> : kAttention<T, kDims, kStaging, false>,
          kBytes};
}

template <typename T>
AttentionVariant VariantFor(int32_t head_dim, int32_t limit, bool aligned) {
  SLUICE_CHECK(head_dim >= 1 && head_dim <= kMaxHeadDim);
  if (head_dim <= 64) return VariantFor<T, 64>(limit, aligned);
  if (head_dim <= 128) return VariantFor<T, 128>(limit, aligned);
  return VariantFor<T, 256>(limit, aligned);
}

}  // namespace

template <typename T>
int32_t AttentionSharedBytes(int32_t head_dim, int32_t limit) {
  return VariantFor<T>(head_dim, limit, /*aligned=*/true).shared_bytes;
}

template <typename T>
void Attention(Stream& stream, const AttentionArgs<T>& args) {
  const int32_t dim = args.kv.head_dim;
  SLUICE_CHECK(args.q_heads % args.kv.kv_heads == 0);
  const bool aligned = RowsAligned(args.q, dim) && RowsAligned(args.q, args.q_stride) &&
                       RowsAligned(args.kv.k, dim) && RowsAligned(args.kv.v, dim);
  const AttentionVariant variant = VariantFor<T>(dim, stream.shared_bytes_limit(), aligned);
  const int64_t items = int64_t{args.tiles.capacity} * args.kv.kv_heads;
  Launch(stream, variant.kernel,
         {PersistentBlocks(stream, items, 2), kThreads, variant.shared_bytes}, args);
}

template int32_t AttentionSharedBytes<float>(int32_t, int32_t);
template int32_t AttentionSharedBytes<BFloat16>(int32_t, int32_t);
template void Attention(Stream&, const AttentionArgs<float>&);
template void Attention(Stream&, const AttentionArgs<BFloat16>&);

}  // namespace sluice::kernels::cuda
