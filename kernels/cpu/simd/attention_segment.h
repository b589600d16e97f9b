// The scores and weights of some queries over one segment of keys. Included by attention.h; see
// vec.h.
//
// The keys of a sequence are cut into segments at absolute positions. Each query's weights are
// relative to the largest score of their segment, and the segments' sums are folded in ascending
// order (attention_fold.h). So a segment's sums have the same bits in any order of the work.
#pragma once

#include "kernels/cpu/simd/activations.h"
#include "kernels/cpu/simd/kv_pages.h"
#include "kernels/cpu/simd/table.h"
#include "kernels/cpu/simd/vec.h"

namespace sluice::kernels::SLUICE_SIMD_NAMESPACE {

// The queries of a tile. Each is a (row, head) pair. Their running sums over a page fill the
// registers.
inline constexpr int kQueries = kLanes == 16 ? 8 : kLanes == 8 ? 6 : 4;
static_assert(kQueries <= simd::kAttentionTile);
inline constexpr int kPageVectors = kPageTokens / kLanes;

// Returns the number of pages that `queries` are scored with at once. Each broadcast feature of a
// query is multiplied with at least two vectors of keys. For a single query it is four vectors, so
// that its sums wait less for each other.
inline constexpr int PagesAtOnce(int queries) {
  const int vectors = queries == 1 ? 4 : 2;
  return kPageVectors < vectors ? vectors / kPageVectors : 1;
}
inline constexpr int64_t kRunFloats = int64_t{simd::kAttentionTile} * simd::kQueryRun;
inline constexpr int kLineFloats = kCacheLine / sizeof(float);
inline constexpr int64_t kLineElements = kCacheLine / sizeof(KvElement);
static_assert(kPageTokens == kLineFloats);

inline constexpr int64_t kSegmentPages = kSegmentTokens / kPageTokens;

// The number of pages whose values are summed while a query's running sums stay in registers.
inline constexpr int64_t kValuePages = 16;
static_assert(kSegmentPages % kValuePages == 0);

struct Query {
  const float* q;  // [head_dim], read before `out` is written
  float* out;      // [head_dim]
  float* scores;   // [score_stride]
  float* sums;     // a record of the segment's sums, see table.h
  float* running;  // the record that `sums` is folded into, or `sums` itself
  int64_t first;   // keys [first, visible)
  int64_t visible;
  int32_t row;  // within the block
  int32_t head;
};

// The keys [begin, end) of a block's sequence. `begin` is the first key of a page, and `end` is at
// most the largest `visible` of its queries. The score of key j is at scores[j - origin].
struct Segment {
  int64_t begin;
  int64_t end;
  int64_t origin;
};

// Returns the past-the-end key of the segment that the query sees.
SLUICE_INLINE int64_t EndOf(const Query& query, const Segment& segment) {
  return query.visible < segment.end ? query.visible : segment.end;
}

// Returns the first key of the segment that the query sees.
SLUICE_INLINE int64_t BeginOf(const Query& query, const Segment& segment) {
  return query.first > segment.begin ? query.first : segment.begin;
}

SLUICE_INLINE int64_t PagesTo(int64_t key) { return (key + kPageTokens - 1) / kPageTokens; }

SLUICE_INLINE const KvElement* KeysOf(const simd::AttentionBlock& block) {
  return static_cast<const KvElement*>(block.kv->k);
}

SLUICE_INLINE const KvElement* ValuesOf(const simd::AttentionBlock& block) {
  return static_cast<const KvElement*>(block.kv->v);
}

SLUICE_INLINE int64_t PageBase(const simd::AttentionBlock& block, int64_t page) {
  const int64_t slab = int64_t{block.kv->head_dim} * kPageTokens + KvPages::kTail;
  return (int64_t{block.pages[page]} * block.kv->kv_heads + block.kv_head) * slab;
}

SLUICE_INLINE const KvElement* ValueAt(const simd::AttentionBlock& block, int64_t position) {
  return ValuesOf(block) + PageBase(block, position / kPageTokens) +
         position % kPageTokens * block.kv->head_dim;
}

// The slabs of keys or values to read after a segment. Their first lines are prefetched while the
// segment's last pages are processed, because hardware prefetchers stop at page boundaries and a
// sequence's pages are not adjacent.
inline constexpr int64_t kPagesAhead = 2;
struct Following {
  const KvElement* slab[kPagesAhead];
};

// Returns the slabs of `store`, the keys or the values, from page `first` on. Pages that the block
// does not read are replaced by page `otherwise`.
SLUICE_INLINE Following FollowingOf(const simd::AttentionBlock& block, const KvElement* store,
                                    int64_t first, int64_t otherwise) {
  Following following;
  for (int64_t i = 0; i < kPagesAhead; ++i) {
    const int64_t page = first + i < block.fetch_pages ? first + i : otherwise;
    following.slab[i] = store + PageBase(block, page);
  }
  return following;
}

// Returns the slab to prefetch while `page` of the pages before `end` is processed.
SLUICE_INLINE const KvElement* SlabAhead(const simd::AttentionBlock& block, const KvElement* store,
                                         const Following& following, int64_t page, int64_t end) {
  const int64_t ahead = page + kPagesAhead;
  return ahead < end ? store + PageBase(block, ahead) : following.slab[ahead - end];
}

// Copies the tile's queries to contiguous memory, so that one address register is enough for all.
SLUICE_INLINE void CopyQueries(const simd::AttentionBlock& block, const Query* queries, int count) {
  const int64_t head_dim = block.kv->head_dim;
  float* run = block.queries;
  for (int64_t begin = 0; begin < head_dim; begin += simd::kQueryRun, run += kRunFloats) {
    const int64_t left = head_dim - begin;
    for (int i = 0; i < count; ++i) {
      const float* const from = queries[i].q + begin;
      float* const to = run + i * simd::kQueryRun;
      if (left >= simd::kQueryRun) {
        constexpr int kVectors = simd::kQueryRun / kLanes;
        VecF q[kVectors];
#pragma GCC unroll 16
        for (int c = 0; c < kVectors; ++c) q[c] = Load(from + c * kLanes);
#pragma GCC unroll 16
        for (int c = 0; c < kVectors; ++c) Store(to + c * kLanes, q[c]);
        continue;
      }
      for (int64_t d = 0; d < left; d += kLanes) {
        Store(to + d, left - d >= kLanes ? Load(from + d) : LoadPartial(from + d, left - d, 0.0f));
      }
    }
  }
}

// Sets to -inf the scores of the segment's keys before the query's first key. In its last page with
// visible keys, also sets the scores after them to -inf.
SLUICE_INLINE void HideScores(const Query& query, const Segment& segment) {
  for (int64_t at = segment.begin; at < query.first; ++at) {
    query.scores[at - segment.origin] = -__builtin_inff();
  }
  const int64_t end = EndOf(query, segment);
  const int64_t last = (end - 1) / kPageTokens * kPageTokens;
  for (int64_t at = last; at < last + kPageTokens; at += kLanes) {
    float* const scores = query.scores + at - segment.origin;
    Store(scores, KeepFirst(Load(scores), end - at, -__builtin_inff()));
  }
}

// Adds scale * values[i * stride + row_of[i]] to each of n scores.
static void AddProducts(const float* values, int64_t stride, const int32_t* row_of, float scale,
                        int64_t n, float* scores) {
  for (int64_t i = 0; i < n; ++i) {
    scores[i] = FmaScalar(scale, values[i * stride + row_of[i]], scores[i]);
  }
}

// Adds the terms of relative positions to the query's scores of the segment.
static void AddRelative(const simd::AttentionBlock& block, const Query& query,
                        const Segment& segment) {
  const simd::RelativeTerms& terms = block.relative;
  const int64_t n = EndOf(query, segment) - segment.begin;
  const int64_t position = block.first_position + query.row;
  const int32_t* const row_of = terms.row_of + segment.begin - position;
  float* const scores = query.scores + segment.begin - segment.origin;
  if (terms.queries.values != nullptr) {
    const float* const products =
        terms.queries.values + query.row * terms.queries.stride - terms.queries.first;
    AddProducts(products, 0, row_of, block.scale, n, scores);
  }
  if (terms.keys.values != nullptr) {
    const float* const products =
        terms.keys.values + segment.begin * terms.keys.stride - terms.keys.first;
    AddProducts(products, terms.keys.stride, row_of, block.scale, n, scores);
  }
}

// Applies the block's soft cap, bias, relative terms and SiLU to the scores of the segment's pages.
// This is a separate pass, because a call between the loops that compute the scores would spill
// their registers.
__attribute__((noinline, cold)) static void ShapeScores(const simd::AttentionBlock& block,
                                                        const Query* queries, int count,
                                                        const Segment& segment) {
  const int64_t end = PagesTo(segment.end) * kPageTokens;
  for (int i = 0; i < count; ++i) {
    const int64_t position = block.first_position + queries[i].row;
    const float* const bias =
        block.bias == nullptr
            ? nullptr
            : block.bias + queries[i].head * block.bias_stride() + block.bias_positions - position;
    for (int64_t at = segment.begin; at < end; at += kLanes) {
      float* const scores = queries[i].scores + at - segment.origin;
      VecF score = Load(scores);
      if (block.soft_cap != 0) score = block.soft_cap * Tanh(score / block.soft_cap);
      if (bias != nullptr) score += Load(bias + at);
      if (block.silu_share != 0) {
        VecF weight[] = {score};
        Silu::Apply(weight);
        score = block.silu_share * weight[0];
      }
      Store(scores, score);
    }
    if (block.relative.row_of != nullptr) AddRelative(block, queries[i], segment);
    HideScores(queries[i], segment);
  }
}

// Computes the scores of the segment's pages. In a query's last page with visible keys, the scores
// after these keys are -inf, and so are the scores before the query's first key. The scores of
// later pages are unspecified. `copies` is from CopyQueries. The lanes of largest[i] get the
// largest scores of query i over all pages.
template <int N>
SLUICE_INLINE void Scores(const simd::AttentionBlock& block, const Query* queries,
                          const float* copies, const Segment& segment, const Following& following,
                          VecF* largest) {
  for (int i = 0; i < N; ++i) largest[i] = Broadcast(-__builtin_inff());
  const int64_t head_dim = block.kv->head_dim;
  const int64_t first = segment.begin / kPageTokens, pages = PagesTo(segment.end);
  constexpr int kAtOnce = PagesAtOnce(N);
  constexpr int64_t kAhead = kAtOnce < kPagesAhead ? kPagesAhead : kAtOnce;
  for (int64_t page = first; page < pages; page += kAtOnce) {
    const KvElement* k[kAtOnce];
    const KvElement* ahead[kAtOnce];
    for (int p = 0; p < kAtOnce; ++p) {
      const int64_t at =
          page + p < pages ? page + p : page;  // a copy past the last page is not stored
      const int64_t next = page + kAhead + p, past = kAtOnce == 1 ? next - pages : p;
      k[p] = KeysOf(block) + PageBase(block, at);
      ahead[p] = next < pages         ? KeysOf(block) + PageBase(block, next)
                 : past < kPagesAhead ? following.slab[past]
                                      : k[p];
    }
    VecF sum[N][kAtOnce * kPageVectors] = {};
    const float* run = copies;
    for (int64_t begin = 0; begin < head_dim; begin += simd::kQueryRun, run += kRunFloats) {
      const int64_t end = begin + simd::kQueryRun < head_dim ? begin + simd::kQueryRun : head_dim;
      const float* q = run;
      for (int64_t d = begin; d < end; ++d, ++q) {
        VecF keys[kAtOnce * kPageVectors];
#pragma GCC unroll 4
        for (int p = 0; p < kAtOnce; ++p) {
          __builtin_prefetch(ahead[p] + d * kPageTokens);
#pragma GCC unroll 4
          for (int c = 0; c < kPageVectors; ++c) {
            keys[p * kPageVectors + c] = KvPages::Widen(k[p] + d * kPageTokens + c * kLanes);
          }
        }
#pragma GCC unroll 8
        for (int i = 0; i < N; ++i) {
          const VecF feature = Broadcast(q[i * simd::kQueryRun]);
#pragma GCC unroll 4
          for (int c = 0; c < kAtOnce * kPageVectors; ++c) {
            sum[i][c] = Fma(feature, keys[c], sum[i][c]);
          }
        }
      }
    }
    const int64_t vectors = (pages - page) * kPageVectors;
    const int64_t at = page * kPageTokens - segment.origin;
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) {
#pragma GCC unroll 4
      for (int c = 0; c < kAtOnce * kPageVectors; ++c) {
        if (c >= vectors) break;
        VecF score = sum[i][c] * block.scale;
        if constexpr (KvPages::kScaled) {
          const KvElement* const slab = k[c / kPageVectors];
          score *= Load(KvPages::ScalesOf(slab, head_dim) + c % kPageVectors * kLanes);
        }
        largest[i] = Max(largest[i], score);
        Store(queries[i].scores + at + c * kLanes, score);
      }
    }
  }
  for (int i = 0; i < N; ++i) HideScores(queries[i], segment);
}

// Returns the number to subtract from scores; `largest` is the largest score. If all scores are
// -inf, their weights become 0.
SLUICE_INLINE float ShiftOf(float largest) { return largest == -__builtin_inff() ? 0.0f : largest; }

SLUICE_INLINE void AddWeights(float* scores, VecF shift, VecF* sum) {
  const VecF weight = Exp(Load(scores) - shift);
  Store(scores, weight);
  *sum += weight;
}

// This many pages of values are prefetched while the weights of a segment are computed, because
// that computation reads no other memory outside the near caches.
inline constexpr int64_t kPagesBeside = 4;

// Prefetches part `page` of the kSegmentPages parts of a segment's values. The first kPagesAhead
// pages of values have been prefetched with the scores.
SLUICE_INLINE void FetchValuesBeside(const simd::AttentionBlock& block, const Segment& segment,
                                     int64_t page) {
  constexpr int64_t kSteps = kSegmentPages / kPagesBeside;  // for one page of values
  const int64_t fetched = segment.begin / kPageTokens + kPagesAhead + page / kSteps;
  if (fetched >= block.fetch_pages) return;
  const int64_t lines = block.kv->head_dim * kPageTokens / (kSteps * kLineElements);
  const KvElement* const v =
      ValuesOf(block) + PageBase(block, fetched) + page % kSteps * lines * kLineElements;
  for (int64_t i = 0; i < lines; ++i) __builtin_prefetch(v + i * kLineElements);
}

// Replaces the segment's scores by the weights exp(score - largest), and writes the largest score
// and the sum of the weights to the queries' records. The queries are interleaved, so that no query
// waits for its own previous result. If `largest` is not nullptr, the lanes of largest[i] have the
// largest scores of query i, which sees the whole segment.
template <int N>
SLUICE_INLINE void Softmax(const simd::AttentionBlock& block, const Query* queries,
                           const Segment& segment, const VecF* largest) {
  const int64_t begin = segment.begin - segment.origin;
  const auto end_of = [&](const Query& query) __attribute__((always_inline)) {
    return PagesTo(EndOf(query, segment)) * kPageTokens - segment.origin;
  };
  const int64_t common = end_of(queries[0]);
  static_assert(kPageTokens % kSumLanes == 0);
  VecF shift[N], sum[N][kSumVectors] = {};
  for (int i = 0; i < N; ++i) {
    shift[i] = largest != nullptr ? largest[i] : Broadcast(-__builtin_inff());
  }
  for (int64_t at = begin; at < common && largest == nullptr; at += kLanes) {
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) shift[i] = Max(shift[i], Load(queries[i].scores + at));
  }
  for (int i = 0; i < N; ++i) {
    for (int64_t at = common; at < end_of(queries[i]); at += kLanes) {
      shift[i] = Max(shift[i], Load(queries[i].scores + at));
    }
    const float whole = MaxLanes(shift[i]);
    queries[i].sums[block.kv->head_dim + simd::kRecordMax] = whole;
    shift[i] = Broadcast(ShiftOf(whole));
  }
  // If a block has several tiles, the later ones find the values in a near cache.
  const bool fetches = block.count * block.heads <= kQueries;
  for (int64_t at = begin; at < common; at += kPageTokens) {
    if (fetches) FetchValuesBeside(block, segment, (at - begin) / kPageTokens);
#pragma GCC unroll 4
    for (int c = 0; c < kPageVectors; ++c) {
#pragma GCC unroll 8
      for (int i = 0; i < N; ++i) {
        AddWeights(queries[i].scores + at + c * kLanes, shift[i], &sum[i][c % kSumVectors]);
      }
    }
  }
  for (int i = 0; i < N; ++i) {
    for (int64_t at = common; at < end_of(queries[i]); at += kSumLanes) {
#pragma GCC unroll 2
      for (int p = 0; p < kSumVectors; ++p) {
        AddWeights(queries[i].scores + at + p * kLanes, shift[i], &sum[i][p]);
      }
    }
    queries[i].sums[block.kv->head_dim + simd::kRecordSum] = SumLanes(sum[i]);
  }
}

// Completes the queries' records of a segment whose scores are already weights, from SiLU. These
// weights are not divided by their sum.
__attribute__((noinline, cold)) static void TakeWeights(const simd::AttentionBlock& block,
                                                        const Query* queries, int count,
                                                        const Segment& segment) {
  for (int i = 0; i < count; ++i) {
    const bool begins = queries[i].first / kSegmentTokens == segment.begin / kSegmentTokens;
    float* const tail = queries[i].sums + block.kv->head_dim;
    tail[simd::kRecordMax] = 0.0f;
    tail[simd::kRecordSum] = begins ? 1.0f : 0.0f;
  }
}

// The factors for the queries' running sums and for their segment's sums before the two are added.
struct FoldFactors {
  alignas(kCacheLine) float all[2 * simd::kAttentionTile];  // of the running sums, then the others

  float& keep(int query) { return all[query]; }
  float& take(int query) { return all[simd::kAttentionTile + query]; }
};

// Updates the largest scores of the running records with the segment's, and returns the factors
// that scale both to them. Needs only the segment's largest scores, so the factors are ready before
// the values are added. The exponentials of all queries are computed at once.
SLUICE_INLINE FoldFactors PrepareFold(const Query* queries, int count, int64_t head_dim) {
  constexpr int kMost = simd::kAttentionTile;
  FoldFactors factors = {};
  for (int i = 0; i < count; ++i) {
    float* const largest = queries[i].running + head_dim + simd::kRecordMax;
    const float before = *largest, later = queries[i].sums[head_dim + simd::kRecordMax];
    *largest = later > before ? later : before;
    factors.keep(i) = before - ShiftOf(*largest);
    factors.take(i) = later - ShiftOf(*largest);
  }
  for (int at = 0; at < 2 * kMost; at += kLanes) {
    Store(factors.all + at, Exp(Load(factors.all + at)));
  }
  return factors;
}

// The same for one query, as a separate function outside the loops of a decode step.
__attribute__((noinline)) static FoldFactors PrepareOneFold(const Query* query, int64_t head_dim) {
  return PrepareFold(query, 1, head_dim);
}

// Adds the sums of the queries' segment to the running ones.
SLUICE_INLINE void Fold(const Query* queries, int count, FoldFactors factors, int64_t head_dim) {
  for (int i = 0; i < count; ++i) {
    const float keep = factors.keep(i), take = factors.take(i);
    float* const sums = queries[i].running;
    const float* const part = queries[i].sums;
    for (int64_t d = head_dim + simd::kRecordSum; d <= head_dim + simd::kRecordOwn; ++d) {
      sums[d] = FmaScalar(part[d], take, sums[d] * keep);
    }
    int64_t d = 0;
    for (; d + kLanes <= head_dim; d += kLanes) {
      Store(sums + d, Fma(Load(part + d), Broadcast(take), Load(sums + d) * keep));
    }
    for (; d < head_dim; ++d) sums[d] = FmaScalar(part[d], take, sums[d] * keep);
  }
}

}  // namespace sluice::kernels::SLUICE_SIMD_NAMESPACE
