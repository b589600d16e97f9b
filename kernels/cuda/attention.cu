#include "kernels/cuda/attention.h"

#include <cmath>

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

template <typename T, int32_t kDims>
struct AttentionShared {
  // Prefetches one chunk where shared memory allows it.
  static constexpr int32_t kStages = sizeof(T) * kDims > 512 ? 1 : 2;
  static constexpr int32_t kStride = kDims + kCopyElements<T>;
  static constexpr int32_t kWeightStride = kChunk + kCopyElements<T>;

  struct Chunk {
    alignas(kCopyBytes) T k[kChunk][kStride];
    alignas(kCopyBytes) T v[kChunk][kStride];
  };
  alignas(kCopyBytes) T q[kTileQueries][kStride];
  Chunk chunks[kStages];
  alignas(kCopyBytes) T weights[kWarps][kWarpQueries][kWeightStride];
};

// The work that a block does at a time: a tile's queries of one KV head.
struct Work {
  AttentionSequence sequence;
  int32_t first;    // packed query
  int32_t queries;  // number of queries in the tile, <= kTileQueries
  int32_t kv_head;
  int32_t context;  // number of positions that the last query sees
};

// The position, head and output of query `i` of the tile.
struct Query {
  int32_t position;
  int32_t head;
  int64_t place;  // row * q_heads + head
};

template <typename T>
__device__ Query QueryAt(const AttentionArgs<T>& args, const Work& work, int32_t i) {
  const int32_t group = args.q_heads / args.kv.kv_heads, packed = work.first + i;
  const int32_t head = work.kv_head * group + packed % group;
  const int64_t row = args.rows[work.sequence.rows_offset + packed / group];
  return {work.sequence.first_position + packed / group, head, row * args.q_heads + head};
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
  Work work = {args.sequences[tile.sequence], tile.first, 0, static_cast<int32_t>(item % kv_heads),
               0};
  const int32_t left = work.sequence.count * group - tile.first;
  work.queries = left < kTileQueries ? left : kTileQueries;
  work.context = work.sequence.first_position +
                 (args.causal ? (tile.first + work.queries - 1) / group + 1 : work.sequence.count);
  return work;
}

template <typename T, int32_t kDims, bool kAsync>
__device__ void BringQueries(const AttentionArgs<T>& args, const Work& work,
                             AttentionShared<T, kDims>& shared) {
  constexpr int32_t kPerRow = kDims / kCopyElements<T>;
  const int32_t dim = args.kv.head_dim;
  for (int32_t i = ThreadIndex(); i < kTileQueries * kPerRow; i += kThreads) {
    const int32_t query = i / kPerRow, d = i % kPerRow * kCopyElements<T>;
    const bool live = query < work.queries;
    const T* from = live ? args.q + QueryAt(args, work, query).place * dim + d : args.q;
    Bring<T, kAsync>(&shared.q[query][d], from, args.q, live ? dim - d : 0);
  }
}

// Copies the positions of the context from chunk * kChunk on to shared memory, with zeros beyond
// the context.
template <typename T, int32_t kDims, bool kAsync>
__device__ void BringChunk(const AttentionArgs<T>& args, const Work& work, int32_t chunk,
                           typename AttentionShared<T, kDims>::Chunk& to) {
  constexpr int32_t kPerRow = kDims / kCopyElements<T>;
  const int32_t dim = args.kv.head_dim;
  for (int32_t i = ThreadIndex(); i < kChunk * kPerRow; i += kThreads) {
    const int32_t key = i / kPerRow, d = i % kPerRow * kCopyElements<T>;
    const int32_t position = chunk * kChunk + key;
    int64_t offset = 0;
    const bool live = position < work.context;
    if (live) {
      const int32_t page = args.pages[work.sequence.pages_offset + position / kPageTokens];
      offset = args.kv.Offset(page * kPageTokens + position % kPageTokens, work.kv_head) + d;
    }
    Bring<T, kAsync>(&to.k[key][d], args.kv.k + offset, args.kv.k, live ? dim - d : 0);
    Bring<T, kAsync>(&to.v[key][d], args.kv.v + offset, args.kv.v, live ? dim - d : 0);
  }
}

// The running softmax of a warp's queries. Lane l holds rows l / 4 and l / 4 + 8, like fragments.
template <typename T, int32_t kDims>
class WarpSoftmax {
 public:
  using Shared = AttentionShared<T, kDims>;

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

  __device__ void Add(const AttentionArgs<T>& args, int32_t chunk, Shared& shared,
                      const typename Shared::Chunk& kv) {
    if (chunk * kChunk >= most_visible_) return;
    float scores[kChunk / 8][4] = {};
    SLUICE_UNROLL
    for (int32_t n = 0; n < kChunk / 8; ++n) {
      MultiplyBlock<kDims, true>(shared.q[Warp() * kWarpQueries], Shared::kStride, kv.k[n * 8],
                                 Shared::kStride, scores[n]);
    }
    float keep[2];
    Weigh(args.scale, chunk * kChunk, scores, keep, shared.weights[Warp()]);
    SyncWarp();
    SLUICE_UNROLL
    for (int32_t n = 0; n < kDims / 8; ++n) {
      float added[4] = {};
      MultiplyBlock<kChunk, false>(shared.weights[Warp()][0], Shared::kWeightStride,
                                   &kv.v[0][n * 8], Shared::kStride, added);
      for (int32_t i = 0; i < 4; ++i) {
        // A chunk of which a row sees nothing must not change even the sign of the row's zeros.
        if (chunk * kChunk < visible_[i / 2]) y_[n][i] = fmaf(y_[n][i], keep[i / 2], added[i]);
      }
    }
    SyncWarp();
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
  // Replaces a chunk's scores by the weights exp(s - max), in shared memory as T, and returns in
  // `keep` the factors for the sums so far.
  __device__ void Weigh(float scale, int32_t first, float (&scores)[kChunk / 8][4],
                        float (&keep)[2], T (&weights)[kWarpQueries][Shared::kWeightStride]) {
    SLUICE_UNROLL
    for (int32_t i = 0; i < 2; ++i) {
      const int32_t visible = visible_[i] - first;  // columns of this chunk
      float largest = largest_[i];
      ForEachScore(scores, i, [&](int32_t column, float& score) {
        score *= scale;
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
      keep[i] = expf(largest_[i] - largest);
      if (visible > 0) {
        sum_[i] = fmaf(sum_[i], keep[i], sum);
        largest_[i] = largest;
      }
    }
  }

  template <typename Function>
  __device__ void ForEachScore(float (&scores)[kChunk / 8][4], int32_t i, Function f) {
    SLUICE_UNROLL
    for (int32_t n = 0; n < kChunk / 8; ++n) {
      for (int32_t j = 0; j < 2; ++j) f(n * 8 + Lane() % 4 * 2 + j, scores[n][2 * i + j]);
    }
  }

  int32_t visible_[2];
  int32_t most_visible_ = 0;  // of the warp's rows
  float largest_[2] = {-INFINITY, -INFINITY};
  float sum_[2] = {};
  float y_[kDims / 8][4] = {};
};

// Excludes the own value from row `i` of this lane and writes the row.
template <typename T, int32_t kDims>
__device__ void WriteRow(const AttentionArgs<T>& args, const Work& work, int32_t i,
                         WarpSoftmax<T, kDims>& softmax) {
  const int32_t index = Warp() * kWarpQueries + Lane() / 4 + 8 * i, dim = args.kv.head_dim;
  const bool live = index < work.queries;
  const Query query = live ? QueryAt(args, work, index) : Query{};
  const T* own = args.kv.v;
  if (live) {
    const int32_t page = args.pages[work.sequence.pages_offset + query.position / kPageTokens];
    own += args.kv.Offset(page * kPageTokens + query.position % kPageTokens, work.kv_head);
  }
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

template <typename T, int32_t kDims, bool kAsync>
__device__ void Attend(const AttentionArgs<T>& args, const Work& work,
                       AttentionShared<T, kDims>& shared) {
  constexpr int32_t kStages = AttentionShared<T, kDims>::kStages, kAhead = kStages - 1;
  const int32_t chunks = (work.context + kChunk - 1) / kChunk;
  BringQueries<T, kDims, kAsync>(args, work, shared);
  for (int32_t chunk = 0; chunk < kAhead; ++chunk) {
    if (chunk < chunks) BringChunk<T, kDims, kAsync>(args, work, chunk, shared.chunks[chunk]);
    CommitCopies();
  }
  WarpSoftmax<T, kDims> softmax(args, work);
  for (int32_t chunk = 0; chunk < chunks; ++chunk) {
    const int32_t next = chunk + kAhead;
    if (next < chunks) {
      BringChunk<T, kDims, kAsync>(args, work, next, shared.chunks[next % kStages]);
    }
    CommitCopies();
    WaitCopies<kAhead>();
    SyncBlock();
    softmax.Add(args, chunk, shared, shared.chunks[chunk % kStages]);
    SyncBlock();  // the chunk's memory may be filled again
  }
  softmax.Finish();
  SLUICE_UNROLL
  for (int32_t i = 0; i < 2; ++i) WriteRow(args, work, i, softmax);
}

template <typename T, int32_t kDims, bool kAsync>
__global__ void __launch_bounds__(kThreads) AttentionKernel(AttentionArgs<T> args) {
  auto& shared = SharedMemory<AttentionShared<T, kDims>>();
  const int64_t items = int64_t{*args.tiles.count} * args.kv.kv_heads;
  for (int64_t item = BlockIndex(); item < items; item += GridBlocks()) {
    Attend<T, kDims, kAsync>(args, WorkOf(args, item), shared);
  }
}

template <typename T, int32_t kDims, bool kAsync>
const Kernel kAttention = KernelOf(kAsync ? "Attention" : "AttentionUnaligned",
                                   &AttentionKernel<T, kDims, kAsync>);

template <typename T, int32_t kDims>
void LaunchAttention(Stream& stream, const AttentionArgs<T>& args) {
  const int32_t dim = args.kv.head_dim;
  const bool aligned =
      RowsAligned(args.q, dim) && RowsAligned(args.kv.k, dim) && RowsAligned(args.kv.v, dim);
  const int64_t items = int64_t{args.tiles.capacity} * args.kv.kv_heads;
  Launch(stream, aligned ? kAttention<T, kDims, true> : kAttention<T, kDims, false>,
         {PersistentBlocks(stream, items, 2), kThreads, sizeof(AttentionShared<T, kDims>)}, args);
}

}  // namespace

template <typename T>
void Attention(Stream& stream, const AttentionArgs<T>& args) {
  const int32_t dim = args.kv.head_dim;
  SLUICE_CHECK(args.q_heads % args.kv.kv_heads == 0 && dim >= 1 && dim <= kMaxHeadDim);
  if (dim <= 64) return LaunchAttention<T, 64>(stream, args);
  if (dim <= 128) return LaunchAttention<T, 128>(stream, args);
  LaunchAttention<T, 256>(stream, args);
}

template void Attention(Stream&, const AttentionArgs<float>&);
template void Attention(Stream&, const AttentionArgs<BFloat16>&);

}  // namespace sluice::kernels::cuda
