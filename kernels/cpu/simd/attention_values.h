// The weighted sums of values of some queries over one segment of keys. Included by attention.h;
// see vec.h.
#pragma once

#include "kernels/cpu/simd/attention_segment.h"

namespace sluice::kernels::SLUICE_SIMD_NAMESPACE {

// Adds p_j v_j[d] to the sums for the keys [begin, end) of the segment and the features
// [d, d + C * kLanes). If begin is `fresh`, the sums begin at 0.
template <int N, int C>
SLUICE_INLINE void AddValues(const simd::AttentionBlock& block, const Query* queries,
                             const Segment& segment, const Following& following, int64_t begin,
                             int64_t end, int64_t fresh, int64_t d) {
  const int64_t head_dim = block.kv->head_dim;
  const int64_t pages = PagesTo(end), past = PagesTo(segment.end);
  VecF sum[N][C] = {};
  if (begin != fresh) {
    for (int i = 0; i < N; ++i) {
      for (int c = 0; c < C; ++c) sum[i][c] = Load(queries[i].sums + d + c * kLanes);
    }
  }
  for (int64_t page = begin / kPageTokens; page < pages; ++page) {
    const int64_t page_begin = page * kPageTokens, page_end = page_begin + kPageTokens;
    const int64_t first = page_begin < begin ? begin : page_begin;
    const int64_t stop = page_end < end ? page_end : end;
    const int64_t offset = (first - page_begin) * head_dim + d;
    const int64_t at = first - segment.origin, keys = stop - first;
    const KvElement* v = ValuesOf(block) + PageBase(block, page) + offset;
    const KvElement* ahead = SlabAhead(block, ValuesOf(block), following, page, past) + offset;
    for (int64_t j = 0; j < keys; ++j, v += head_dim, ahead += head_dim) {
#pragma GCC unroll 8
      for (int c = 0; c < C * kLanes; c += kLineElements) __builtin_prefetch(ahead + c);
#pragma GCC unroll 8
      for (int i = 0; i < N; ++i) {
        const VecF weight = Broadcast(queries[i].scores[at + j]);
#pragma GCC unroll 8
        for (int c = 0; c < C; ++c) {
          sum[i][c] = Fma(weight, KvPages::Widen(v + c * kLanes), sum[i][c]);
        }
      }
    }
  }
  for (int i = 0; i < N; ++i) {
    for (int c = 0; c < C; ++c) Store(queries[i].sums + d + c * kLanes, sum[i][c]);
  }
}

// Adds all features from d on, C vectors at a time, then fewer.
template <int N, int C>
SLUICE_INLINE void AddFeatures(const simd::AttentionBlock& block, const Query* queries,
                               const Segment& segment, const Following& following, int64_t begin,
                               int64_t end, int64_t fresh, int64_t d) {
  for (; d + C * kLanes <= block.kv->head_dim; d += C * kLanes) {
    AddValues<N, C>(block, queries, segment, following, begin, end, fresh, d);
  }
  if constexpr (C > 1) {
    AddFeatures<N, C / 2>(block, queries, segment, following, begin, end, fresh, d);
  } else {
    for (; d < block.kv->head_dim; ++d) {
      for (int i = 0; i < N; ++i) {
        float sum = begin == fresh ? 0.0f : queries[i].sums[d];
        for (int64_t j = begin; j < end; ++j) {
          sum = FmaScalar(queries[i].scores[j - segment.origin],
                          KvPages::WidenOne(ValueAt(block, j)[d]), sum);
        }
        queries[i].sums[d] = sum;
      }
    }
  }
}

// Adds p_j v_j to the sums for j in [begin, end) of the segment. If not all features fit the
// registers, processes a few pages at a time, so that these pages stay in a near cache for all
// features. If begin is `fresh`, the sums begin at 0.
template <int N>
SLUICE_INLINE void AddAllValues(const simd::AttentionBlock& block, const Query* queries,
                                const Segment& segment, const Following& following, int64_t begin,
                                int64_t end, int64_t fresh) {
  constexpr int kSums = kLanes == 16 ? 16 : 8;  // the registers that are left after the values
  constexpr int kVectors = N == 1 ? 8 : N == 2 ? kSums / 2 : N <= 4 ? kSums / 4 : 2;
  const bool at_once = block.kv->head_dim <= kVectors * kLanes;
  const int64_t pages = at_once ? kSegmentPages : kValuePages;
  while (begin < end) {
    const int64_t past = (begin / kPageTokens + pages) * kPageTokens;
    const int64_t stop = past < end ? past : end;
    AddFeatures<N, kVectors>(block, queries, segment, following, begin, stop, fresh, 0);
    begin = stop;
  }
}

// Adds p_j v_j for the keys [begin, end) of the segment. Only some queries of the tile see these
// keys; usually it is one key, the row's own. The sums begin at 0 before the key `first`.
SLUICE_INLINE void AddOwnValues(const simd::AttentionBlock& block, const Query& query,
                                const Segment& segment, int64_t begin, int64_t end, int64_t first) {
  const int64_t head_dim = block.kv->head_dim;
  for (int64_t j = begin; j < end; ++j) {
    const KvElement* const v = ValueAt(block, j);
    const float weight = query.scores[j - segment.origin];
    const bool fresh = j == first;
    int64_t d = 0;
    for (; d + kLanes <= head_dim; d += kLanes) {
      const VecF sum = fresh ? VecF{} : Load(query.sums + d);
      Store(query.sums + d, Fma(Broadcast(weight), KvPages::Widen(v + d), sum));
    }
    for (; d < head_dim; ++d) {
      query.sums[d] = FmaScalar(weight, KvPages::WidenOne(v[d]), fresh ? 0.0f : query.sums[d]);
    }
  }
}

SLUICE_INLINE void ClearSums(const Query& query, int64_t head_dim) {
  for (int64_t d = 0; d < head_dim; ++d) query.sums[d] = 0.0f;
}

// Implements AddSegmentValues if the windows of the queries begin at different keys of the segment.
// It has its own copy of the inner loops, so that the usual case is not slowed.
template <int N>
__attribute__((noinline, cold)) static void AddWindowedValues(const simd::AttentionBlock& block,
                                                              const Query* queries,
                                                              const Segment& segment,
                                                              const Following& following,
                                                              const int64_t* ends) {
  const int64_t head_dim = block.kv->head_dim;
  const int64_t all = BeginOf(queries[N - 1], segment);  // Later rows have later windows.
  for (int i = 0; i < N; ++i) {
    const int64_t own = BeginOf(queries[i], segment);
    const int64_t stop = all < ends[i] ? all : ends[i];
    AddOwnValues(block, queries[i], segment, own, stop, own);
    if (stop <= own) ClearSums(queries[i], head_dim);
  }
  AddAllValues<N>(block, queries, segment, following, all, ends[0], -1);
  const int64_t done = all > ends[0] ? all : ends[0];
  for (int i = 0; i < N; ++i) AddOwnValues(block, queries[i], segment, done, ends[i], -1);
}

// Sets the sums of p_j v_j over the segment's keys that each query sees, up to its end. Keys that
// all queries see are added together. Keys at the borders of windows and the last keys are added
// one by one.
template <int N>
SLUICE_INLINE void AddSegmentValues(const simd::AttentionBlock& block, const Query* queries,
                                    const Segment& segment, const Following& following,
                                    const int64_t* ends) {
  const int64_t begin = BeginOf(queries[0], segment);
  if (BeginOf(queries[N - 1], segment) != begin) {
    return AddWindowedValues<N>(block, queries, segment, following, ends);
  }
  AddAllValues<N>(block, queries, segment, following, begin, ends[0], begin);
  const int64_t done = begin > ends[0] ? begin : ends[0];
  for (int i = 0; i < N; ++i) {
    AddOwnValues(block, queries[i], segment, done, ends[i], begin);
    if (ends[i] <= begin) ClearSums(queries[i], block.kv->head_dim);
  }
}

// Multiplies the weights of the segment's keys by the scales of their values.
template <int N>
__attribute__((noinline)) static void ScaleWeights(const simd::AttentionBlock& block,
                                                   const Query* queries, const Segment& segment) {
  const int64_t pages = PagesTo(segment.end);
  for (int64_t page = segment.begin / kPageTokens; page < pages; ++page) {
    const KvElement* const slab = ValuesOf(block) + PageBase(block, page);
    const float* const scales = KvPages::ScalesOf(slab, block.kv->head_dim);
    for (int i = 0; i < N; ++i) {
      float* const weights = queries[i].scores + page * kPageTokens - segment.origin;
      for (int c = 0; c < kPageTokens; c += kLanes) {
        Store(weights + c, Load(weights + c) * Load(scales + c));
      }
    }
  }
}

// Computes the sums of the segment from its scores and folds them into the running sums. `largest`
// is the same as for Softmax. With `own_apart`, a query's last visible key is its row's own: its
// value is not added, and its weight goes to the record. With kWeights the scores are already
// weights; this is a template parameter because a branch would cost other models registers.
template <int N, bool kWeights>
SLUICE_INLINE void Sums(const simd::AttentionBlock& block, const Query* queries,
                        const Segment& segment, const Following& following, const VecF* largest,
                        bool own_apart) {
  const int64_t head_dim = block.kv->head_dim;
  if constexpr (kWeights) {
    TakeWeights(block, queries, N, segment);
  } else {
    Softmax<N>(block, queries, segment, largest);
  }
  const bool folds = queries[0].running != queries[0].sums;
  FoldFactors factors;
  if (folds)
    factors = N == 1 ? PrepareOneFold(queries, head_dim) : PrepareFold(queries, N, head_dim);
  int64_t ends[N];
  for (int i = 0; i < N; ++i) {
    const Query& query = queries[i];
    ends[i] = EndOf(query, segment);
    const bool apart = own_apart && query.visible == ends[i];
    if (apart) --ends[i];
    query.sums[head_dim + simd::kRecordOwn] = apart ? query.scores[ends[i] - segment.origin] : 0.0f;
  }
  if constexpr (KvPages::kScaled) ScaleWeights<N>(block, queries, segment);
  AddSegmentValues<N>(block, queries, segment, following, ends);
  if (folds) Fold(queries, N, factors, head_dim);
}

}  // namespace sluice::kernels::SLUICE_SIMD_NAMESPACE
