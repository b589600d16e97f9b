// Attention of a block of query rows with one KV head. Included by table.inc; see vec.h.
//
// Up to kQueries (row, head) pairs form a tile that reads each KV page once. Every sum of a query
// runs over its own visible keys, so that its bits do not depend on its neighbours in the tile.
#pragma once

#include "kernels/cpu/simd/logits.h"
#include "kernels/cpu/simd/rows.h"
#include "kernels/cpu/simd/table.h"
#include "kernels/cpu/simd/vec.h"

namespace sluice::kernels::SLUICE_SIMD_NAMESPACE {

// The queries of a tile. Their running sums over a page fill the registers.
inline constexpr int kQueries = kLanes == 16 ? 8 : kLanes == 8 ? 6 : 4;
static_assert(kQueries <= simd::kAttentionTile);
inline constexpr int kPageVectors = kPageTokens / kLanes;
// The number of pages that are scored at once: each broadcast feature of a query is multiplied with
// at least two vectors of keys.
inline constexpr int kPagesAtOnce = kPageVectors == 1 ? 2 : 1;

// The prefetch distance in pages. Hardware prefetchers stop at page boundaries, and a sequence's
// pages are not adjacent.
inline constexpr int64_t kPagesAhead = 2;
inline constexpr int64_t kRunFloats = int64_t{simd::kAttentionTile} * simd::kQueryRun;
inline constexpr int kLineFloats = kCacheLine / sizeof(float);
static_assert(kPageTokens == kLineFloats);

// The number of pages whose values are summed while a query's running sums stay in registers.
inline constexpr int64_t kValuePages = 16;

// The value of a row's own position, which XSA excludes.
struct OwnValue {
  const float* v;        // [head_dim]
  float norm;            // |v|
  float inverse_square;  // 1 / |v|^2, bounded by eps as the form of XSA says
  bool bounded;          // whether the bound applied
};

struct Query {
  const float* q;   // [head_dim], read before `out` is written
  float* out;       // [head_dim]
  float* scores;    // [score_stride]
  float* y;         // [head_dim] running sums
  int64_t visible;  // keys [0, visible)
  int32_t row;      // within the block
  int32_t head;
};

SLUICE_INLINE int64_t PageBase(const simd::AttentionBlock& block, int64_t page) {
  const int64_t slab = int64_t{block.kv->head_dim} * kPageTokens;
  return (int64_t{block.pages[page]} * block.kv->kv_heads + block.kv_head) * slab;
}

// Returns the page, of `pages`, to prefetch while `page` is processed.
SLUICE_INLINE int64_t PageToFetch(int64_t page, int64_t pages) {
  return page + kPagesAhead < pages ? page + kPagesAhead : page;
}

SLUICE_INLINE const float* ValueAt(const simd::AttentionBlock& block, int64_t position) {
  return block.kv->v + PageBase(block, position / kPageTokens) +
         position % kPageTokens * block.kv->head_dim;
}

// Copies the tile's queries to where a single address reaches them all.
template <int N>
SLUICE_INLINE void CopyQueries(const simd::AttentionBlock& block, const Query* queries) {
  const int64_t head_dim = block.kv->head_dim;
  float* run = block.queries;
  for (int64_t begin = 0; begin < head_dim; begin += simd::kQueryRun, run += kRunFloats) {
    const int64_t left = head_dim - begin;
    for (int i = 0; i < N; ++i) {
      const float* const from = queries[i].q + begin;
      float* const to = run + i * simd::kQueryRun;
      for (int64_t d = 0; d < simd::kQueryRun && d < left; d += kLanes) {
        Store(to + d, left - d >= kLanes ? Load(from + d) : LoadPartial(from + d, left - d, 0.0f));
      }
    }
  }
}

// Computes the scores of whole pages. In a query's last page with visible keys, the scores past
// them are -inf; those of later pages are unspecified.
template <int N>
SLUICE_INLINE void Scores(const simd::AttentionBlock& block, const Query* queries) {
  const int64_t head_dim = block.kv->head_dim;
  const int64_t pages = (queries[N - 1].visible + kPageTokens - 1) / kPageTokens;
  for (int64_t page = 0; page < pages; page += kPagesAtOnce) {
    const float* k[kPagesAtOnce];
    const float* ahead[kPagesAtOnce];
    for (int p = 0; p < kPagesAtOnce; ++p) {
      const int64_t at =
          page + p < pages ? page + p : page;  // a copy past the last page is not stored
      k[p] = block.kv->k + PageBase(block, at);
      ahead[p] = block.kv->k + PageBase(block, PageToFetch(at, pages));
    }
    VecF sum[N][kPagesAtOnce * kPageVectors] = {};
    const float* run = block.queries;
    for (int64_t begin = 0; begin < head_dim; begin += simd::kQueryRun, run += kRunFloats) {
      const int64_t end = begin + simd::kQueryRun < head_dim ? begin + simd::kQueryRun : head_dim;
      const float* q = run;
      for (int64_t d = begin; d < end; ++d, ++q) {
        VecF keys[kPagesAtOnce * kPageVectors];
#pragma GCC unroll 2
        for (int p = 0; p < kPagesAtOnce; ++p) {
          __builtin_prefetch(ahead[p] + d * kPageTokens);
#pragma GCC unroll 4
          for (int c = 0; c < kPageVectors; ++c) {
            keys[p * kPageVectors + c] = Load(k[p] + d * kPageTokens + c * kLanes);
          }
        }
#pragma GCC unroll 8
        for (int i = 0; i < N; ++i) {
          const VecF feature = Broadcast(q[i * simd::kQueryRun]);
#pragma GCC unroll 4
          for (int c = 0; c < kPagesAtOnce * kPageVectors; ++c) {
            sum[i][c] = Fma(feature, keys[c], sum[i][c]);
          }
        }
      }
    }
    const int64_t vectors = (pages - page) * kPageVectors;
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) {
#pragma GCC unroll 4
      for (int c = 0; c < kPagesAtOnce * kPageVectors; ++c) {
        if (c >= vectors) break;
        Store(queries[i].scores + page * kPageTokens + c * kLanes, sum[i][c] * block.scale);
      }
    }
  }
  for (int i = 0; i < N; ++i) {
    const int64_t last = (queries[i].visible - 1) / kPageTokens * kPageTokens;
    for (int64_t at = last; at < last + kPageTokens; at += kLanes) {
      float* const scores = queries[i].scores + at;
      Store(scores, KeepFirst(Load(scores), queries[i].visible - at, -__builtin_inff()));
    }
  }
}

SLUICE_INLINE void AddWeights(float* scores, VecF shift, VecF* sum) {
  const VecF weight = Exp(Load(scores) - shift);
  Store(scores, weight);
  *sum += weight;
}

SLUICE_INLINE int64_t ScoresOf(const Query& query) {
  return (query.visible + kPageTokens - 1) / kPageTokens * kPageTokens;
}

// Replaces the scores by the weights exp(score - largest) and sets sums[i] to the sum of query i's
// weights. The queries are interleaved, so that none waits for its own previous result.
template <int N>
SLUICE_INLINE void Softmax(const Query* queries, float* sums) {
  const int64_t common = ScoresOf(queries[0]);
  VecF shift[N], sum[N] = {};
  for (int i = 0; i < N; ++i) shift[i] = Broadcast(-__builtin_inff());
  for (int64_t at = 0; at < common; at += kLanes) {
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) shift[i] = Max(shift[i], Load(queries[i].scores + at));
  }
  for (int i = 0; i < N; ++i) {
    for (int64_t at = common; at < ScoresOf(queries[i]); at += kLanes) {
      shift[i] = Max(shift[i], Load(queries[i].scores + at));
    }
    shift[i] = Broadcast(MaxLanes(shift[i]));
  }
  for (int64_t at = 0; at < common; at += kLanes) {
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) AddWeights(queries[i].scores + at, shift[i], &sum[i]);
  }
  for (int i = 0; i < N; ++i) {
    for (int64_t at = common; at < ScoresOf(queries[i]); at += kLanes) {
      AddWeights(queries[i].scores + at, shift[i], &sum[i]);
    }
    sums[i] = SumLanes(sum[i]);
  }
}

// Adds p_j v_j[d] to y for the keys [begin, end) and the features [d, d + C * kLanes).
template <int N, int C>
SLUICE_INLINE void AddValues(const simd::AttentionBlock& block, const Query* queries, int64_t begin,
                             int64_t end, int64_t d) {
  const int64_t head_dim = block.kv->head_dim;
  const int64_t pages = (end + kPageTokens - 1) / kPageTokens;
  VecF sum[N][C];
  for (int i = 0; i < N; ++i) {
    for (int c = 0; c < C; ++c) sum[i][c] = Load(queries[i].y + d + c * kLanes);
  }
  for (int64_t page = begin / kPageTokens; page < pages; ++page) {
    const int64_t page_begin = page * kPageTokens, page_end = page_begin + kPageTokens;
    const int64_t first = page_begin < begin ? begin : page_begin;
    const int64_t stop = page_end < end ? page_end : end;
    const int64_t offset = (first - page_begin) * head_dim + d;
    const float* v = block.kv->v + PageBase(block, page) + offset;
    const float* ahead = block.kv->v + PageBase(block, PageToFetch(page, pages)) + offset;
    for (int64_t j = first; j < stop; ++j, v += head_dim, ahead += head_dim) {
#pragma GCC unroll 8
      for (int c = 0; c < C * kLanes; c += kLineFloats) __builtin_prefetch(ahead + c);
#pragma GCC unroll 8
      for (int i = 0; i < N; ++i) {
        const VecF weight = Broadcast(queries[i].scores[j]);
#pragma GCC unroll 8
        for (int c = 0; c < C; ++c) sum[i][c] = Fma(weight, Load(v + c * kLanes), sum[i][c]);
      }
    }
  }
  for (int i = 0; i < N; ++i) {
    for (int c = 0; c < C; ++c) Store(queries[i].y + d + c * kLanes, sum[i][c]);
  }
}

// Adds all features from d on, C vectors at a time, then fewer.
template <int N, int C>
SLUICE_INLINE void AddFeatures(const simd::AttentionBlock& block, const Query* queries,
                               int64_t begin, int64_t end, int64_t d) {
  for (; d + C * kLanes <= block.kv->head_dim; d += C * kLanes) {
    AddValues<N, C>(block, queries, begin, end, d);
  }
  if constexpr (C > 1) {
    AddFeatures<N, C / 2>(block, queries, begin, end, d);
  } else {
    for (; d < block.kv->head_dim; ++d) {
      for (int i = 0; i < N; ++i) {
        float sum = queries[i].y[d];
        for (int64_t j = begin; j < end; ++j) {
          sum = FmaScalar(queries[i].scores[j], ValueAt(block, j)[d], sum);
        }
        queries[i].y[d] = sum;
      }
    }
  }
}

// Adds p_j v_j to y for j in [begin, end), some pages at a time: these stay in a near cache while
// their features are processed in turn, which a long context would not.
template <int N>
SLUICE_INLINE void AddAllValues(const simd::AttentionBlock& block, const Query* queries,
                                int64_t begin, int64_t end) {
  constexpr int kSums = kLanes == 16 ? 16 : 8;  // as many as the registers hold beside the values
  constexpr int kVectors = N == 1 ? 8 : N == 2 ? kSums / 2 : N <= 4 ? kSums / 4 : 2;
  while (begin < end) {
    const int64_t past = (begin / kPageTokens + kValuePages) * kPageTokens;
    const int64_t stop = past < end ? past : end;
    AddFeatures<N, kVectors>(block, queries, begin, stop, 0);
    begin = stop;
  }
}

static OwnValue OwnValueOf(const simd::AttentionBlock& block, int32_t row) {
  const float* v = ValueAt(block, block.first_position + row);
  const float norm = __builtin_sqrtf(Dot(v, v, block.kv->head_dim));
  const float eps = block.xsa_eps;
  if (block.xsa == XsaForm::kNorm) {  // divided twice, because eps^2 could vanish
    const float divisor = norm > eps ? norm : eps;
    return {v, norm, 1.0f / divisor / divisor, norm <= eps};
  }
  const float square = norm * norm;
  return {v, norm, 1.0f / (square > eps ? square : eps), square <= eps};
}

// Computes the diagnostics from the sums y, which still lack the share `self` of the row's own
// value. The share is added before anything is squared, because sum and share may nearly cancel.
static void Diagnose(const simd::AttentionBlock& block, const Query& query, const OwnValue& own,
                     float self, float inverse) {
  constexpr float kEps = 1e-6f;
  const int64_t at = block.rows[query.row] * block.diagnostics_stride + query.head;
  float dot = 0.0f, square = 0.0f;
  for (int64_t d = 0; d < block.kv->head_dim; ++d) {
    const float y = FmaScalar(self, own.v[d], query.y[d]);
    dot = FmaScalar(y, own.v[d], dot);
    square = FmaScalar(y, y, square);
  }
  const float cos_sim = inverse * __builtin_fabsf(dot) / (own.norm > kEps ? own.norm : kEps);
  const float length = inverse * __builtin_sqrtf(square);
  if (block.cos_sim != nullptr) block.cos_sim[at] = cos_sim;
  if (block.proj_frac != nullptr) block.proj_frac[at] = cos_sim / (length > kEps ? length : kEps);
}

// Returns the factor with which the row's own value is added to the sums y, which hold all other
// values: its share `self` less the gated projection of the whole onto it. Without a gate the share
// cancels, so that no accuracy is lost where a row attends mostly to itself.
SLUICE_INLINE float OwnShare(const simd::AttentionBlock& block, const Query& query,
                             const OwnValue& own, float self, float inverse) {
  if (block.cos_sim != nullptr || block.proj_frac != nullptr) {
    Diagnose(block, query, own, self, inverse);
  }
  const float dot = Dot(query.y, own.v, block.kv->head_dim);
  if (block.xsa_gate == nullptr && !own.bounded) return -dot * own.inverse_square;
  const float gate = block.xsa_gate != nullptr ? block.xsa_gate[query.head] : 1.0f;
  const float whole = dot + self * (own.norm * own.norm);
  return self - gate * whole * own.inverse_square;
}

// Writes out = (y + share * v) * inverse; `v` may be nullptr.
SLUICE_INLINE void WriteOut(const Query& query, const float* v, float share, float inverse,
                            int64_t head_dim) {
  int64_t d = 0;
  for (; d + kLanes <= head_dim; d += kLanes) {
    VecF y = Load(query.y + d);
    if (v != nullptr) y = Fma(Broadcast(share), Load(v + d), y);
    Store(query.out + d, y * inverse);
  }
  for (; d < head_dim; ++d) {
    const float y = v != nullptr ? FmaScalar(share, v[d], query.y[d]) : query.y[d];
    query.out[d] = y * inverse;
  }
}

// Computes a tile. `queries` ascend in `visible`; `own` is indexed by row and read only with XSA.
// With causal XSA a row's own value is left out of the sums; it is the last one.
template <int N>
static void AttendTile(const simd::AttentionBlock& block, const Query* queries,
                       const OwnValue* own) {
  const int64_t head_dim = block.kv->head_dim;
  const bool xsa = block.xsa != XsaForm::kOff;
  const int64_t apart = xsa && block.context == 0 ? 1 : 0;
  CopyQueries<N>(block, queries);
  Scores<N>(block, queries);
  float sums[N];
  Softmax<N>(queries, sums);
  for (int i = 0; i < N; ++i) {
    for (int64_t d = 0; d < head_dim; ++d) queries[i].y[d] = 0.0f;
  }
  const int64_t common = queries[0].visible - apart;
  AddAllValues<N>(block, queries, 0, common);
  for (int i = 0; i < N; ++i) {
    const Query& query = queries[i];
    const int64_t end = query.visible - apart;
    if (common < end) AddAllValues<1>(block, &query, common, end);
    const float inverse = 1.0f / sums[i];
    if (!xsa) {
      WriteOut(query, nullptr, 0.0f, inverse, head_dim);
      continue;
    }
    const OwnValue& value = own[query.row];
    const float self = apart != 0 ? query.scores[end] : 0.0f;
    WriteOut(query, value.v, OwnShare(block, query, value, self, inverse), inverse, head_dim);
  }
}

template <int N>
static void DispatchAttendTile(const simd::AttentionBlock& block, const Query* queries, int count,
                               const OwnValue* own) {
  if (count == N) {
    AttendTile<N>(block, queries, own);
  } else if constexpr (N > 1) {
    DispatchAttendTile<N - 1>(block, queries, count, own);
  }
}

// Fills in queries [first, first + count) of the block, ordered by row, then head.
static void FillTile(const simd::AttentionBlock& block, int32_t first, int count, Query* queries) {
  const int64_t head_dim = block.kv->head_dim;
  int32_t row = first / block.heads, head = first % block.heads;
  for (int i = 0; i < count; ++i) {
    const int64_t offset = block.rows[row] * block.row_stride + head * head_dim;
    float* scratch = block.scratch + i * (block.score_stride + head_dim);
    const int64_t visible = block.context != 0 ? block.context : block.first_position + row + 1;
    queries[i] = {block.q + offset,
                  block.out + offset,
                  scratch,
                  scratch + block.score_stride,
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

static void Attention(const simd::AttentionBlock& block) {
  OwnValue own[simd::kAttentionRows];
  for (int32_t row = 0; row < block.count && block.xsa != XsaForm::kOff; ++row) {
    own[row] = OwnValueOf(block, row);
  }
  const int32_t total = block.count * block.heads;
  const int32_t tiles = (total + kQueries - 1) / kQueries;
  const auto begin = [&](int32_t tile) {
    return total * tile / tiles;
  };  // tiles of nearly equal sizes
  Query queries[2][kQueries];
  FillTile(block, 0, begin(1), queries[0]);
  for (int32_t tile = 0; tile < tiles; ++tile) {
    Query* const next = queries[(tile + 1) % 2];
    if (tile + 1 < tiles) {
      const int count = begin(tile + 2) - begin(tile + 1);
      FillTile(block, begin(tile + 1), count, next);
      FetchTile(next, count, block.kv->head_dim);
    }
    DispatchAttendTile<kQueries>(block, queries[tile % 2], begin(tile + 1) - begin(tile), own);
  }
}

}  // namespace sluice::kernels::SLUICE_SIMD_NAMESPACE
