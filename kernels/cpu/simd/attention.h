// Attention of a block of query rows with one KV head. Included by table.inc; see vec.h.
//
// Up to kQueries (row, head) pairs form a tile that reads each KV page once. In one pass over keys
// that do not fit a near cache, all tiles of a block read a segment before the next segment. Every
// sum of a query includes only its own visible keys, so its bits do not depend on the other queries
// of the tile.
#pragma once

#include "kernels/cpu/simd/attention_fold.h"
#include "kernels/cpu/simd/attention_segment.h"
#include "kernels/cpu/simd/attention_values.h"

namespace sluice::kernels::SLUICE_SIMD_NAMESPACE {

// Fills in queries [first, first + count) of the block, ordered by row, then head.
static void FillTile(const simd::AttentionBlock& block, int32_t first, int count, Query* queries) {
  const int64_t head_dim = block.kv->head_dim;
  int32_t row = first / block.heads, head = first % block.heads;
  for (int i = 0; i < count; ++i) {
    const int64_t offset = block.rows[row] * block.row_stride + head * head_dim;
    const int64_t position = block.first_position + row, window = block.window;
    int64_t visible = block.context != 0 ? block.context : position + 1;
    if (window != 0 && position + window < visible) visible = position + window;
    const int64_t lowest = window != 0 && position >= window ? position - window + 1 : 0;
    queries[i] = {block.q + offset,
                  block.out + offset,
                  block.scores + i * block.score_stride,
                  nullptr,
                  nullptr,
                  lowest,
                  visible,
                  row,
                  head};
    if (++head == block.heads) {
      head = 0;
      ++row;
    }
  }
}

static void FetchTile(const Query* queries, int count, int64_t head_dim) {
  for (int i = 0; i < count; ++i) {
    for (int64_t d = 0; d < head_dim; d += kLineFloats) {
      __builtin_prefetch(queries[i].q + d);
      __builtin_prefetch(queries[i].out + d, 1);
    }
  }
}

// The keys and values of this many segments stay in a near cache.
inline constexpr int64_t kNearSegments = 2;

// The work of a tile's queries on a segment. `copies` begins at the first query.
enum class Phase { kScores, kSums, kBoth };

template <int N, bool kWeights>
__attribute__((noinline)) static void RunSegment(const simd::AttentionBlock& block,
                                                 const Query* queries, const float* copies,
                                                 Segment segment, Phase phase) {
  const bool own_apart = block.xsa != XsaForm::kOff && block.context == 0;
  const int64_t first = segment.begin / kPageTokens, next = PagesTo(segment.end);
  const KvElement *const k = KeysOf(block), *const v = ValuesOf(block);
  VecF largest[N];
  if (phase != Phase::kSums) {
    const Following following = phase == Phase::kBoth ? FollowingOf(block, v, first, first)
                                                      : FollowingOf(block, k, next, first);
    Scores<N>(block, queries, copies, segment, following, largest);
  }
  if (phase != Phase::kScores) {
    const Following following = FollowingOf(block, phase == Phase::kBoth ? k : v, next, first);
    const bool see_all = queries[0].visible >= segment.end && segment.end % kPageTokens == 0;
    const bool known = phase == Phase::kBoth && see_all && queries[N - 1].first <= segment.begin;
    Sums<N, kWeights>(block, queries, segment, following, known ? largest : nullptr, own_apart);
  }
}

template <int N, bool kWeights>
static void DispatchSegment(const simd::AttentionBlock& block, const Query* queries, int count,
                            const float* copies, const Segment& segment, Phase phase) {
  if (count == N) {
    RunSegment<N, kWeights>(block, queries, copies, segment, phase);
  } else if constexpr (N > 1) {
    DispatchSegment<N - 1, kWeights>(block, queries, count, copies, segment, phase);
  }
}

// Returns the record of a query's sums over `segment` in a block with parts.
SLUICE_INLINE float* PartOf(const simd::AttentionBlock& block, int64_t segment, int64_t query) {
  return block.parts + (segment * block.count * block.heads + query) * block.record_stride;
}

// A tile of a block's queries.
struct QueryTile {
  int32_t first;  // in the block
  int count;
  float* running;  // [count] records of the sums over all segments so far
};

// Computes the block's segment `index` for a tile. Skips queries that do not see the segment.
// Queries with earlier segments come first; the others have nothing to fold it into.
static void AttendSegment(const simd::AttentionBlock& block, const QueryTile& tile, Query* queries,
                          int64_t index, const OwnValue* own, Phase phase) {
  const int64_t begin = index * kSegmentTokens, past = begin + kSegmentTokens;
  int skip = 0, end = tile.count;
  while (skip < end && queries[skip].visible <= begin) ++skip;
  while (skip < end && queries[end - 1].first >= past) --end;
  int folded = skip;  // past the last query with earlier segments
  for (int i = skip; i < end; ++i) {
    const int64_t record = i * block.record_stride;
    float* const part = block.parts == nullptr ? nullptr : PartOf(block, index, tile.first + i);
    queries[i].running = part != nullptr ? part : tile.running + record;
    queries[i].sums = queries[i].running;
    if (part != nullptr || queries[i].first >= begin) continue;
    queries[i].sums = block.segment_sums + record;
    folded = i + 1;
  }
  const auto dispatch = [&](int from, int to) {
    if (from == to) return;
    const int64_t first = queries[from].first / kPageTokens * kPageTokens;
    const int64_t visible = queries[to - 1].visible;
    const Segment segment = {first > begin ? first : begin, visible < past ? visible : past,
                             phase == Phase::kBoth ? begin : 0};
    const auto run = [&](Phase part) {
      const bool weights = block.silu_share != 0 && part == Phase::kSums;
      (weights ? DispatchSegment<kQueries, true>
               : DispatchSegment<kQueries, false>)(block, queries + from, to - from,
                                                   block.queries + from * int64_t{simd::kQueryRun},
                                                   segment, part);
    };
    const bool shaped = block.soft_cap != 0 || block.bias != nullptr || block.silu_share != 0 ||
                        block.relative.row_of != nullptr;
    if (!shaped || phase == Phase::kSums) return run(phase);
    run(Phase::kScores);
    ShapeScores(block, queries + from, to - from, segment);
    if (phase == Phase::kBoth) run(Phase::kSums);
  };
  dispatch(skip, folded);
  dispatch(folded, end);
  if (phase == Phase::kScores || block.parts != nullptr) return;
  for (int i = skip; i < end; ++i) {
    if (queries[i].visible <= past) Finish(block, queries[i], own[queries[i].row]);
  }
}

// Returns the record of the part that reads the own position of a query's row, in a block with
// parts.
SLUICE_INLINE float* OwnPartOf(const simd::AttentionBlock& block, int64_t query) {
  const int64_t position = block.first_position + query / block.heads;
  return PartOf(block, position / kSegmentTokens, query);
}

// Computes the own values of the rows whose own positions are in the block's segments. The query
// heads of a row share its own value. In a block with parts, writes the norms to the records.
static void OwnValuesOf(const simd::AttentionBlock& block, OwnValue* own) {
  if (block.xsa == XsaForm::kOff) return;
  const int64_t head_dim = block.kv->head_dim;
  for (int32_t row = 0; row < block.count; ++row) {
    const int64_t segment = (block.first_position + row) / kSegmentTokens;
    if (segment < block.first_segment || segment >= block.past_segment) continue;
    const float* const v = OwnFloats(block, row);
    const float norm = __builtin_sqrtf(Dot(v, v, head_dim));
    own[row] = OwnValueOf(block, v, norm);
    if (block.parts == nullptr) continue;
    for (int32_t head = 0; head < block.heads; ++head) {
      OwnPartOf(block, row * block.heads + head)[head_dim + simd::kRecordNorm] = norm;
    }
  }
}

static void Attention(const simd::AttentionBlock& block) {
  OwnValue own[simd::kAttentionRows];
  OwnValuesOf(block, own);
  const int32_t total = block.count * block.heads;
  const int32_t tiles = (total + kQueries - 1) / kQueries;
  const auto begin = [&](int32_t tile) {
    return total * tile / tiles;
  };  // tiles of nearly equal sizes
  // If the keys fit a near cache, or with two passes, one tile reads all keys before the next tile.
  // Otherwise all tiles read a segment before the next segment.
  const int64_t segments = block.past_segment - block.first_segment;
  const int64_t at_once = block.two_pass || tiles == 1 || segments <= kNearSegments ? segments : 1;
  // Running sums are kept after a tile's turn only if the tile has several turns.
  const auto tile_of = [&](int32_t index) -> QueryTile {
    const int32_t first = begin(index);
    const int64_t record = at_once < segments ? first : 0;
    return {first, begin(index + 1) - first, block.running + record * block.record_stride};
  };
  Query queries[2][kQueries];
  FillTile(block, 0, begin(1), queries[0]);
  int64_t turn = 0;
  for (int64_t i = block.first_segment; i < block.past_segment; i += at_once) {
    for (int32_t tile = 0; tile < tiles; ++tile, ++turn) {
      Query* const now = queries[turn % 2];
      const QueryTile all = tile_of(tile);
      CopyQueries(block, now, all.count);  // before the next tile's loads delay them
      const bool last = tile + 1 == tiles;
      if (!last || i + at_once < block.past_segment) {
        const int32_t after = last ? 0 : tile + 1;
        const int count = begin(after + 1) - begin(after);
        Query* const next = queries[(turn + 1) % 2];
        FillTile(block, begin(after), count, next);
        FetchTile(next, count, block.kv->head_dim);
      }
      const auto attend = [&](Phase phase) {
        for (int64_t s = i; s < i + at_once; ++s) AttendSegment(block, all, now, s, own, phase);
      };
      if (block.two_pass) attend(Phase::kScores);
      attend(block.two_pass ? Phase::kSums : Phase::kBoth);
    }
  }
}

// Folds the records of the block's query `index` and writes its output.
static void FoldAttention(const simd::AttentionBlock& block, int64_t index) {
  Query query;
  FillTile(block, static_cast<int32_t>(index), 1, &query);
  const int64_t first = query.first / kSegmentTokens;
  query.running = PartOf(block, first, index);
  const int64_t head_dim = block.kv->head_dim;
  const int64_t segments = (query.visible + kSegmentTokens - 1) / kSegmentTokens;
  for (int64_t i = first + 1; i < segments; ++i) {
    query.sums = PartOf(block, i, index);
    Fold(&query, 1, PrepareFold(&query, 1, head_dim), head_dim);
  }
  OwnValue own = {};
  if (block.xsa != XsaForm::kOff) {
    const float norm = OwnPartOf(block, index)[head_dim + simd::kRecordNorm];
    own = OwnValueOf(block, OwnFloats(block, query.row), norm);
  }
  Finish(block, query, own);
}

}  // namespace sluice::kernels::SLUICE_SIMD_NAMESPACE
