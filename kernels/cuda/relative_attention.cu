#include "kernels/cuda/relative_attention.h"

#include <cmath>

#include "base/check.h"
#include "kernels/cuda/bfloat16.h"
#include "kernels/cuda/reduce.h"
#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int32_t kWarps = 4;
constexpr int32_t kBlocks = 8;  // of a processor
// A block computes the queries of a part of a tile.
constexpr int32_t kParts = 4, kPartQueries = kTileQueries / kParts;
// The features of a value that a lane adds up.
constexpr int32_t kFeatures = kMaxRelativeHeadDim / kWarp;

struct QueryShared {
  float q[kWarps][kMaxRelativeHeadDim];
};

// Returns tile `index` of those that are not divided or that are divided, as a whole. Returns
// nullptr for a part of a divided tile.
__device__ const AttentionTile* WholeTile(const AttentionTiles& tiles, int32_t index) {
  const int32_t listed = tiles.counts->wide + tiles.counts->narrow;
  if (index >= listed) return tiles.tiles + tiles.capacity - 1 - (index - listed);
  const AttentionTile* const tile = tiles.tiles + index;
  return tile->record < 0 ? tile : nullptr;
}

// A query and the keys that it sees.
struct Query {
  const int32_t* pages;
  int32_t row, position, context, head;
};

// Returns the score of the key at position `j`.
template <typename T>
__device__ float ScoreOf(const RelativeAttentionArgs<T>& args, const Query& query, const float* q,
                         const KvRow<const T>& k, int32_t j) {
  const RelativeTable& table = args.table;
  const int32_t dim = args.op.kv.head_dim;
  const int64_t row = table.row_of[table.positions + j - query.position];
  const int64_t of_head = (row * args.op.q_heads + query.head) * dim;
  float score = 0;
  for (int32_t i = 0; i < dim; ++i) {
    const float key = Widen(*k.At(i));
    score += q[i] * key;
    if (table.keys != nullptr) score += q[i] * table.keys[of_head + i];
    if (table.queries != nullptr) score += key * table.queries[of_head + i];
  }
  return args.op.scale * score;
}

// One warp computes the attention of a query. Its features are in shared memory.
template <typename T>
__device__ void Attend(const RelativeAttentionArgs<T>& args, const Query& query, const float* q) {
  const int32_t dim = args.op.kv.head_dim;
  const auto row = [&](const T* layer, int32_t j) {
    const int32_t slot = query.pages[j / kPageTokens] * kPageTokens + j % kPageTokens;
    return args.op.kv.Row(layer, slot, query.head);
  };
  float largest = -INFINITY, sum = 0, y[kFeatures] = {};
  for (int32_t first = 0; first < query.context; first += kWarp) {
    const int32_t j = first + Lane();
    const bool visible = j < query.context;
    const float score = visible ? ScoreOf(args, query, q, row(args.op.kv.k, j), j) : -INFINITY;
    const float before = largest;
    largest = fmaxf(largest, LaneReduce(score, Max()));
    const float kept = expf(before - largest);
    const float weight = visible ? expf(score - largest) : 0.0f;
    sum = sum * kept + weight;
    SLUICE_UNROLL
    for (int32_t f = 0; f < kFeatures; ++f) y[f] *= kept;
    const int32_t keys = query.context - first < kWarp ? query.context - first : kWarp;
    for (int32_t key = 0; key < keys; ++key) {
      const float of_key = Shuffle(weight, key);
      const KvRow<const T> v = row(args.op.kv.v, first + key);
      SLUICE_UNROLL
      for (int32_t f = 0; f < kFeatures; ++f) {
        const int32_t feature = f * kWarp + Lane();
        if (feature < dim) y[f] += of_key * Widen(*v.At(feature));
      }
    }
  }
  sum = LaneReduce(sum, Plus());
  T* const out = args.op.out + (int64_t{query.row} * args.op.q_heads + query.head) * dim;
  SLUICE_UNROLL
  for (int32_t f = 0; f < kFeatures; ++f) {
    const int32_t feature = f * kWarp + Lane();
    if (feature < dim) out[feature] = Narrow<T>(y[f] / sum);
  }
}

template <typename T>
__global__ void __launch_bounds__(kWarps* kWarp)
    RelativeAttentionKernel(RelativeAttentionArgs<T> args) {
  WaitForPrevious();
  float* const q = SharedMemory<QueryShared>().q[Warp()];
  const int32_t heads = args.op.q_heads, dim = args.op.kv.head_dim;
  const int32_t head = BlockIndex() % heads, step = GridBlocks() / heads;
  const AttentionTileCounts counts = *args.op.tiles.counts;
  const int32_t parts = (counts.wide + counts.narrow + counts.divided) * kParts;
  const int64_t row_width = int64_t{heads} * dim;
  const int64_t stride = args.op.q_stride > 0 ? args.op.q_stride : row_width;
  for (int32_t part = BlockIndex() / heads; part < parts; part += step) {
    const AttentionTile* const tile = WholeTile(args.op.tiles, part / kParts);
    if (tile == nullptr) continue;
    const AttentionSequence& sequence = args.op.sequences[tile->sequence];
    const int32_t first = tile->first + part % kParts * kPartQueries;
    const int32_t rest = sequence.count - first;
    const int32_t queries = rest < kPartQueries ? rest : kPartQueries;
    for (int32_t i = Warp(); i < queries; i += kWarps) {
      const Query query = {.pages = args.op.pages + sequence.pages_offset,
                           .row = args.op.rows[sequence.rows_offset + first + i],
                           .position = sequence.first_position + first + i,
                           .context = tile->context,
                           .head = head};
      SyncWarp();
      const T* const from = args.op.q + query.row * stride + int64_t{head} * dim;
      for (int32_t f = Lane(); f < dim; f += kWarp) q[f] = Widen(from[f]);
      SyncWarp();
      Attend(args, query, q);
    }
  }
}

template <typename T>
const Kernel kRelativeAttention = KernelOf("RelativeAttention", &RelativeAttentionKernel<T>);

}  // namespace

template <typename T>
void RelativeAttention(Stream& stream, const RelativeAttentionArgs<T>& args) {
  SLUICE_CHECK(args.op.kv.head_dim <= kMaxRelativeHeadDim &&
               args.op.q_heads == args.op.kv.kv_heads);
  const int64_t most = int64_t{args.op.tiles.capacity} * kParts * args.op.q_heads;
  const int32_t step = PersistentBlocks(stream, most, kBlocks) / args.op.q_heads;
  Launch(stream, kRelativeAttention<T>,
         {.blocks = (step > 0 ? step : 1) * args.op.q_heads,
          .threads = kWarps * kWarp,
          .shared_bytes = sizeof(QueryShared),
          .overlaps_previous = true},
         args);
}

template void RelativeAttention(Stream&, const RelativeAttentionArgs<float>&);
template void RelativeAttention(Stream&, const RelativeAttentionArgs<BFloat16>&);

}  // namespace sluice::kernels::cuda
