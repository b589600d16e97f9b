// Attention of a block of query rows with one KV head. Included by table.inc; see vec.h.
//
// Up to kQueries (row, head) pairs form a tile that meets each KV page once. Every sum of a query
// runs over its own visible keys, so that its bits do not depend on its neighbours in the tile.
#pragma once

#include "kernels/cpu/simd/logits.h"
#include "kernels/cpu/simd/rows.h"
#include "kernels/cpu/simd/table.h"
#include "kernels/cpu/simd/vec.h"

namespace sluice::kernels::SLUICE_SIMD_NAMESPACE {

inline constexpr int kQueries = kLanes == 16 ? 8 : 4;
static_assert(kQueries <= simd::kAttentionTile);
inline constexpr int kPageVectors = kPageTokens / kLanes;

// The hardware's prefetchers stop at page ends, and a sequence's pages lie anywhere.
inline constexpr int64_t kPagesAhead = 2;
inline constexpr int kLineFloats = kCacheLine / sizeof(float);
static_assert(kPageTokens == kLineFloats);

struct Query {
  const float* q;   // [head_dim]
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

// The page whose fetch begins with the work on `page`, of `pages`.
SLUICE_INLINE int64_t PageToFetch(int64_t page, int64_t pages) {
  return page + kPagesAhead < pages ? page + kPagesAhead : page;
}

SLUICE_INLINE const float* ValueAt(const simd::AttentionBlock& block, int64_t position) {
  return block.kv->v + PageBase(block, position / kPageTokens) +
         position % kPageTokens * block.kv->head_dim;
}

// Scores of whole pages; lanes past a query's visible keys are garbage, possibly NaN.
template <int N>
SLUICE_INLINE void Scores(const simd::AttentionBlock& block, const Query* queries) {
  const int64_t head_dim = block.kv->head_dim;
  const int64_t pages = (queries[N - 1].visible + kPageTokens - 1) / kPageTokens;
  for (int64_t page = 0; page < pages; ++page) {
    const float* k = block.kv->k + PageBase(block, page);
    const float* ahead = block.kv->k + PageBase(block, PageToFetch(page, pages));
    VecF sum[N][kPageVectors] = {};
    for (int64_t d = 0; d < head_dim; ++d, k += kPageTokens, ahead += kPageTokens) {
      __builtin_prefetch(ahead);
#pragma GCC unroll 8
      for (int i = 0; i < N; ++i) {
        const VecF q = Broadcast(queries[i].q[d]);
#pragma GCC unroll 4
        for (int c = 0; c < kPageVectors; ++c) sum[i][c] = Fma(q, Load(k + c * kLanes), sum[i][c]);
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) {
#pragma GCC unroll 4
      for (int c = 0; c < kPageVectors; ++c) {
        Store(queries[i].scores + page * kPageTokens + c * kLanes, sum[i][c] * block.scale);
      }
    }
  }
}

// Sums p_j v_j[d] for the keys [begin, end) of one page, whose values are at `v`, onto what y holds, for
// features [d, d + C * kLanes). Fetches as much, at `ahead`.
template <int N, int C>
SLUICE_INLINE void AddValues(const Query* queries, int64_t begin, int64_t end, int64_t d,
                             const float* v, int64_t head_dim, const float* ahead) {
  VecF sum[N][C];
  for (int i = 0; i < N; ++i) {
    for (int c = 0; c < C; ++c) sum[i][c] = Load(queries[i].y + d + c * kLanes);
  }
  v += d;
  for (int64_t j = begin; j < end; ++j, v += head_dim, ahead += C * kLanes) {
#pragma GCC unroll 8
    for (int c = 0; c < C * kLanes; c += kLineFloats) __builtin_prefetch(ahead + c);
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      const VecF value = Load(v + c * kLanes);
#pragma GCC unroll 8
      for (int i = 0; i < N; ++i) {
        sum[i][c] = Fma(Broadcast(queries[i].scores[j]), value, sum[i][c]);
      }
    }
  }
  for (int i = 0; i < N; ++i) {
    for (int c = 0; c < C; ++c) Store(queries[i].y + d + c * kLanes, sum[i][c]);
  }
}

template <int N>
SLUICE_INLINE void AddValuesOfPage(const Query* queries, int64_t begin, int64_t end, const float* v,
                                   int64_t head_dim, const float* ahead) {
  constexpr int kVectors = 8 / N > 1 ? 8 / N : 1;
  int64_t d = 0;
  for (; d + kVectors * kLanes <= head_dim; d += kVectors * kLanes) {
    AddValues<N, kVectors>(queries, begin, end, d, v, head_dim, ahead + d * kPageTokens);
  }
  for (; d + kLanes <= head_dim; d += kLanes) {
    AddValues<N, 1>(queries, begin, end, d, v, head_dim, ahead + d * kPageTokens);
  }
  for (; d < head_dim; ++d) {
    for (int i = 0; i < N; ++i) {
      float sum = queries[i].y[d];
      for (int64_t j = begin; j < end; ++j) {
        sum = FmaScalar(queries[i].scores[j], v[(j - begin) * head_dim + d], sum);
      }
      queries[i].y[d] = sum;
    }
  }
}

// Sums p_j v_j for j in [begin, end), onto what y holds. Page by page: a page stays in the first-level
// cache while its features are taken in turn, a long context would not.
template <int N>
SLUICE_INLINE void AddAllValues(const simd::AttentionBlock& block, const Query* queries,
                                int64_t begin, int64_t end) {
  const int64_t pages = (end + kPageTokens - 1) / kPageTokens;
  while (begin < end) {
    const int64_t page = begin / kPageTokens;
    const int64_t page_end = (page + 1) * kPageTokens;
    const int64_t stop = page_end < end ? page_end : end;
    AddValuesOfPage<N>(queries, begin, stop, ValueAt(block, begin), block.kv->head_dim,
                       block.kv->v + PageBase(block, PageToFetch(page, pages)));
    begin = stop;
  }
}

// Takes from y (normalised) its part along the value v of the row's own position.
static void Exclude(const simd::AttentionBlock& block, const Query& query, const float* v,
                    float norm) {
  constexpr float kDiagnosticEps = 1e-6f;
  const int64_t head_dim = block.kv->head_dim;
  float* y = query.y;
  const float dot = Dot(y, v, head_dim);
  const int64_t diagnostic = block.rows[query.row] * block.diagnostics_stride + query.head;
  const float cos_sim = __builtin_fabsf(dot) / (norm > kDiagnosticEps ? norm : kDiagnosticEps);
  if (block.cos_sim != nullptr) block.cos_sim[diagnostic] = cos_sim;
  if (block.proj_frac != nullptr) {
    const float length = __builtin_sqrtf(Dot(y, y, head_dim));
    block.proj_frac[diagnostic] = cos_sim / (length > kDiagnosticEps ? length : kDiagnosticEps);
  }
  const float gate = block.xsa_gate != nullptr ? block.xsa_gate[query.head] : 1.0f;
  float along;
  if (block.xsa == XsaForm::kNorm) {  // divided twice: eps^2 could vanish
    const float divisor = norm > block.xsa_eps ? norm : block.xsa_eps;
    along = gate * (dot / divisor) / divisor;
  } else {
    const float square = norm * norm;
    along = gate * dot / (square > block.xsa_eps ? square : block.xsa_eps);
  }
  for (int64_t d = 0; d < head_dim; ++d) y[d] = FmaScalar(-along, v[d], y[d]);
}

// `queries` ascend in `visible`.
template <int N>
static void AttendTile(const simd::AttentionBlock& block, const Query* queries,
                       const float* norms) {
  const int64_t head_dim = block.kv->head_dim;
  Scores<N>(block, queries);
  float sums[N];
  for (int i = 0; i < N; ++i) {
    const Query& query = queries[i];
    const float largest = MaxOf(query.scores, query.visible);
    sums[i] = ExpSum(query.scores, query.visible, largest, 1.0f, 0.0f, query.scores);
    for (int64_t d = 0; d < head_dim; ++d) query.y[d] = 0.0f;
  }
  const int64_t common = queries[0].visible;
  AddAllValues<N>(block, queries, 0, common);
  for (int i = 0; i < N; ++i) {
    const Query& query = queries[i];
    AddAllValues<1>(block, &query, common, query.visible);
    for (int64_t d = 0; d < head_dim; ++d) query.y[d] /= sums[i];
    if (block.xsa != XsaForm::kOff) {
      Exclude(block, query, ValueAt(block, block.first_position + query.row), norms[query.row]);
    }
    __builtin_memcpy(query.out, query.y, static_cast<size_t>(head_dim) * sizeof(float));
  }
}

template <int N>
static void DispatchAttendTile(const simd::AttentionBlock& block, const Query* queries, int count,
                               const float* norms) {
  if (count == N) {
    AttendTile<N>(block, queries, norms);
  } else if constexpr (N > 1) {
    DispatchAttendTile<N - 1>(block, queries, count, norms);
  }
}

static void Attention(const simd::AttentionBlock& block) {
  const int64_t head_dim = block.kv->head_dim;
  float norms[simd::kAttentionRows];
  if (block.xsa != XsaForm::kOff) {
    for (int32_t row = 0; row < block.count; ++row) {
      const float* v = ValueAt(block, block.first_position + row);
      norms[row] = __builtin_sqrtf(Dot(v, v, head_dim));
    }
  }
  const int32_t total = block.count * block.heads;
  for (int32_t first = 0; first < total; first += kQueries) {
    Query queries[kQueries];
    const int count = total - first < kQueries ? total - first : kQueries;
    for (int i = 0; i < count; ++i) {
      const int32_t row = (first + i) / block.heads, head = (first + i) % block.heads;
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
    }
    DispatchAttendTile<kQueries>(block, queries, count, norms);
  }
}

}  // namespace sluice::kernels::SLUICE_SIMD_NAMESPACE
