// The sums of attention that a warp holds for its 16 queries: the scores and weights of a chunk of
// keys, the sums of a segment, and the merge of segments. Device code only.
//
// Lane l holds rows l / 4 and l / 4 + 8, like the fragments of MultiplyAdd: element [n][2 i + j] of
// a row of blocks is row l / 4 + 8 i, column 8 n + l % 4 * 2 + j.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/attention_scores.h"
#include "kernels/cuda/kv_cache.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/vector.h"
#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {

// The values of a head that were replaced by zeros because they are not finite.
template <typename T>
struct ClearedValues {
  KvLayer<T> kv;
  const int32_t* pages;  // of the sequence
  int32_t kv_head;
  int32_t lowest, past;  // the positions that the tile sees
};

// The sums of a warp in memory, and the positions that its rows see.
template <int32_t kBlocks>
struct ClearedSums {
  float y[kBlocks][4];
  int32_t first[2], past[2];
};

// Adds the values of the chunk at `first` that are not finite to the sums, which begin with block
// `first_block` of 8 features.
template <typename T, int32_t kChunk, int32_t kBlocks>
SLUICE_NOT_INLINED __device__ void AddClearedValues(const ClearedValues<T>& values,
                                                    const Weights<T, kChunk>& weights,
                                                    int32_t first, int32_t first_block,
                                                    ClearedSums<kBlocks>& sums) {
  const int32_t begin = first < values.lowest ? values.lowest - first : 0;
  SLUICE_ROLLED
  for (int32_t key = begin; key < kChunk && first + key < values.past; ++key) {
    const int32_t position = first + key, in_page = position % kPageTokens;
    const int32_t slot = values.pages[position / kPageTokens] * kPageTokens + in_page;
    const KvRow<T> row = values.kv.Row(values.kv.v, slot, values.kv_head);
    float weight[2];
    for (int32_t i = 0; i < 2; ++i) {
      const float held = weights.Get(key / 8, 2 * i + key % 2);
      weight[i] = Shuffle(held, Lane() / 4 * 4 + key % 8 / 2);
    }
    SLUICE_ROLLED
    for (int32_t n = 0; n < kBlocks * 2; ++n) {
      const int32_t d = (first_block + n / 2) * 8 + Lane() % 4 * 2 + n % 2;
      if (d >= values.kv.head_dim || IsFinite(*row.At(d))) continue;
      for (int32_t i = 0; i < 2; ++i) {
        float& sum = sums.y[n / 2][2 * i + n % 2];
        if (position < sums.first[i] || position >= sums.past[i]) continue;
        sum = fmaf(weight[i], Widen(*row.At(d)), sum);
      }
    }
  }
}

// With kShaped, there may be windows, soft caps and biases. Either the warp has all kDims features
// of its queries, or the kShare = 4 warps of a block share the queries: each computes the scores of
// a quarter of the keys, namely each fourth block of kWeightBlock keys, and the sums of a quarter
// of the features. All steps of a sum are the same in both cases.
template <typename T, int32_t kDims, bool kShaped, int32_t kShare = 1>
class WarpSums {
 public:
  static constexpr int32_t kChunk = ChunkKeys(kDims);
  static constexpr int32_t kBlocks = kDims / 8 / kShare;  // of 8 features
  static constexpr int32_t kOwnKeys = kChunk / kShare;
  static constexpr bool kInRegisters = kBlocks * 8 <= kMaxRegisterDims;
  using ChunkWeights = Weights<T, kChunk>;

  // `queries` are the warp's. Unless kInRegisters, each thread has kBlocks * 4 merged sums from
  // `totals` on, with `stride` from one to the next.
  __device__ WarpSums(const QueryPlace* queries, float* totals, int32_t stride,
                      const ScoreShape& shape)
      : totals_(totals), stride_(stride), shape_(shape) {
    constexpr int32_t kMost = INT32_MAX;
    int32_t most = 0;
    SLUICE_UNROLL
    for (int32_t i = 0; i < 2; ++i) {
      const int32_t visible = queries[Lane() / 4 + 8 * i].visible;
      most = visible > most ? visible : most;
      visible_[i] = visible == 0 ? kMost : visible;  // a query beyond the end counts as seeing all
    }
    most_visible_ = LaneReduce(most, Max());
    least_visible_ = LaneReduce(visible_[0] < visible_[1] ? visible_[0] : visible_[1], Min());
    if constexpr (kShaped) {
      int32_t last = 0;
      SLUICE_UNROLL
      for (int32_t i = 0; i < 2; ++i) {
        const QueryPlace query = queries[Lane() / 4 + 8 * i];
        const bool there = query.visible > 0;
        first_[i] = there ? FirstKey(query.position, shape.window) : kMost;
        if (there) last = first_[i] > last ? first_[i] : last;
        const bool biased = there && shape.bias != nullptr;
        bias_[i] = biased ? shape.bias + query.head * shape.bias_stride - query.position : nullptr;
      }
      least_first_ = LaneReduce(first_[0] < first_[1] ? first_[0] : first_[1], Min());
      most_first_ = LaneReduce(last, Max());
    }
  }

  // Returns whether a query of the warp sees some of the `count` positions from `first` on. They
  // must end at a cut.
  __device__ bool Sees(int32_t first, int32_t count) const {
    if (kShaped && first + count <= least_first_) return false;
    return first < most_visible_;
  }
  // Returns whether row `i` sees a position of the segment.
  __device__ bool SeesSegment(int32_t i, int32_t segment) const {
    constexpr int32_t kSegment = kSegmentTokens;
    if (kShaped && first_[i] >= (segment + 1) * kSegment) return false;
    return visible_[i] > segment * kSegment;
  }

  __device__ void BeginSegment() {
    SLUICE_UNROLL
    for (int32_t i = 0; i < 2; ++i) {
      largest_[i] = -INFINITY;
      sum_[i] = 0;
    }
    ForEach([](int32_t, float& y) { y = 0; });
  }

  // Replaces the scores of the chunk at `first` by weights, and brings the sums to the new maximum.
  __device__ void Weigh(int32_t first, Scores<kChunk>& scores) {
    static_assert(kShare == 1);
    if (kShaped && shape_.silu_share != 0) return WeighBySilu(first, scores);
    Shape(first, scores);
    float largest[2], keep[2], sums[2] = {};
    SLUICE_UNROLL
    for (int32_t i = 0; i < 2; ++i) largest[i] = Largest(scores, i);
    Raise(largest, keep);
    SLUICE_UNROLL
    for (int32_t i = 0; i < 2; ++i) {
      SLUICE_UNROLL
      for (int32_t n = 0; n < kChunk / 8; n += kWeightBlock / 8) {
        sums[i] += WeighBlock(&scores[n], i);
      }
    }
    AddSums(sums, keep);
  }

  // Replaces the scores of the calling warp's quarter of the chunk at `first` by weights and writes
  // these to `memory`. TakeShared must follow after a barrier.
  template <typename Memory>
  __device__ void WeighShared(int32_t first, Scores<kOwnKeys>& scores, Memory& memory,
                              float (&keep)[2]) {
    SLUICE_UNROLL
    for (int32_t j = 0; j < kOwnKeys / kWeightBlock; ++j) {
      const int32_t at = first + (j * kShare + Warp()) * kWeightBlock;
      float(&own)[2][4] = *reinterpret_cast<float(*)[2][4]>(&scores[2 * j]);
      if (kShaped && shape_.silu_share != 0) {
        WeighBySilu(at, own);
      } else {
        Shape(at, own);
      }
    }
    keep[0] = keep[1] = 1;
    const bool is_softmax = !kShaped || shape_.silu_share == 0;
    if (is_softmax) {
      float largest[2];
      SLUICE_UNROLL
      for (int32_t i = 0; i < 2; ++i) {
        largest[i] = Largest(scores, i);
        if (Lane() % 4 == 0) memory.largest[Lane() / 4 + 8 * i][Warp()] = largest[i];
      }
      SyncBlock();
      SLUICE_UNROLL
      for (int32_t i = 0; i < 2; ++i) {
        const auto each = Load<kShare>(memory.largest[Lane() / 4 + 8 * i]);
        SLUICE_UNROLL
        for (int32_t w = 0; w < kShare; ++w) largest[i] = fmaxf(largest[i], each.at[w]);
      }
      Raise(largest, keep);
    }
    SLUICE_UNROLL
    for (int32_t j = 0; j < kOwnKeys / kWeightBlock; ++j) {
      const int32_t block = j * kShare + Warp();
      if (is_softmax) {
        Pack<float, 2> sums;
        SLUICE_UNROLL
        for (int32_t i = 0; i < 2; ++i) sums.at[i] = WeighBlock(&scores[2 * j], i);
        StoreWhole(sums, &memory.sums[block][Lane()]);
      }
      Weights<T, kWeightBlock> weights;
      weights.Set(0, &scores[2 * j]);
      SLUICE_UNROLL
      for (int32_t p = 0; p < weights.kPacks; ++p) {
        StoreWhole(weights.at[0][p], &memory.weights[block][p][Lane()]);
      }
    }
  }

  // Reads the weights of the chunk that the warps have written, and adds their sums.
  template <typename Memory>
  __device__ void TakeShared(const Memory& memory, const float (&keep)[2], ChunkWeights& weights) {
    float sums[2] = {};
    SLUICE_UNROLL
    for (int32_t block = 0; block < kChunk / kWeightBlock; ++block) {
      SLUICE_UNROLL
      for (int32_t p = 0; p < ChunkWeights::kPacks; ++p) {
        weights.at[block][p] = LoadWhole<Pack<uint32_t>>(&memory.weights[block][p][Lane()]);
      }
      if (kShaped && shape_.silu_share != 0) continue;
      const auto each = LoadWhole<Pack<float, 2>>(&memory.sums[block][Lane()]);
      SLUICE_UNROLL
      for (int32_t i = 0; i < 2; ++i) sums[i] += each.at[i];
    }
    if (!kShaped || shape_.silu_share == 0) AddSums(sums, keep);
  }

  // Adds the weighted values of kKeys keys, whose weights begin with block `first_block` of
  // kWeightBlock keys.
  template <int32_t kKeys>
  __device__ void AddValues(const TurnedRows<T, kDims>& values, const ChunkWeights& weights,
                            int32_t first_block) {
    if constexpr (sizeof(T) == sizeof(float)) {
      SLUICE_UNROLL
      for (int32_t n = 0; n < kKeys / 8; ++n) {
        float row[4];
        SLUICE_UNROLL
        for (int32_t i = 0; i < 4; ++i) row[i] = weights.Get(2 * first_block + n, i);
        SLUICE_ROLLED
        for (int32_t key = 0; key < 8; ++key) AddValue(values, n * 8 + key, row);
      }
    } else {
      // See AddScores.
      constexpr int32_t kHeld = kBlocks < 8 ? kBlocks / 2 : 4;
      const T* at[kHeld];
      const int32_t turn = Lane() / 16 ^ Lane() % 8;
      SLUICE_UNROLL
      for (int32_t i = 0; i < kHeld; ++i) {
        at[i] = values.first + Lane() % 16 * kDims + FirstBlock() / 8 * 64 +
                ((FirstBlock() % 8 + 2 * i) ^ turn) * 8;
      }
      SLUICE_UNROLL
      for (int32_t k = 0; k < kKeys / 16; ++k) {
        const uint32_t(&a)[4] = weights.at[first_block + k][0].at;
        SLUICE_UNROLL
        for (int32_t n = 0; n < kBlocks; n += 2) {
          uint32_t b[4];
          LoadMatrices<true>(at[n / 2 % kHeld] + n / 8 * 64 + k * 16 * kDims, b);
          MultiplyAdd(y_[n], a, {b[0], b[1]});
          MultiplyAdd(y_[n + 1], a, {b[2], b[3]});
        }
      }
    }
  }

  // Adds the values of the chunk at `first` that are not finite, and were replaced by zeros, to
  // the rows that see them. This rare path works on copies in memory, so that it takes no registers
  // from the usual path.
  __device__ void AddCleared(const ChunkWeights& weights, int32_t first,
                             const ClearedValues<T>& values) {
    ClearedSums<kBlocks> sums;
    ChunkWeights copies;
    SLUICE_UNROLL
    for (int32_t n = 0; n < kBlocks; ++n) {
      for (int32_t i = 0; i < 4; ++i) sums.y[n][i] = y_[n][i];
    }
    SLUICE_UNROLL
    for (int32_t block = 0; block < kChunk / kWeightBlock; ++block) {
      for (int32_t p = 0; p < ChunkWeights::kPacks; ++p) copies.at[block][p] = weights.at[block][p];
    }
    for (int32_t i = 0; i < 2; ++i) {
      sums.first[i] = FirstKeyOf(i);
      sums.past[i] = visible_[i];
    }
    AddClearedValues<T, kChunk, kBlocks>(values, copies, first, FirstBlock(), sums);
    SLUICE_UNROLL
    for (int32_t n = 0; n < kBlocks; ++n) {
      for (int32_t i = 0; i < 4; ++i) y_[n][i] = sums.y[n][i];
    }
  }

  // Ends the segment. Merges its sums with the sums before, unless they go to records.
  __device__ void EndSegment(int32_t segment, bool to_records) {
    constexpr int32_t kSegment = kSegmentTokens;
    ClearSigns();
    SLUICE_UNROLL
    for (int32_t i = 0; i < 2; ++i) sum_[i] = LaneReduce<4>(sum_[i], Plus());
    if (to_records) return;
    const bool last = most_visible_ <= (segment + 1) * kSegment;
    SLUICE_UNROLL
    for (int32_t i = 0; i < 2; ++i) {
      const RecordTail own = {largest_[i], sum_[i]};
      if (segment <= FirstSegment(i)) {
        merged_[i] = own;
      } else if (visible_[i] > segment * kSegment) {
        const MergeFactors factors = AddSegment(merged_[i], own);
        ForRow(i, [&](float& y, float& total) { y = factors.Merge(total, y); });
      } else {
        ForRow(i, [](float& y, float& total) { y = total; });
      }
    }
    if (last) return;
    SLUICE_UNROLL
    for (int32_t i = 0; i < 2; ++i) {
      ForRow(i, [](float& y, float& total) { total = y; });
    }
  }

  // Returns this lane's elements, in the order of a warpgroup's sums (kernels/simt/warpgroup.h).
  __device__ float (&Elements())[kBlocks * 4] {
    return reinterpret_cast<float(&)[kBlocks * 4]>(y_);
  }
  // Returns the sums of row `i` for this lane's two features of block `n` of 8 features.
  __device__ float (&At(int32_t n, int32_t i))[2] {
    return *reinterpret_cast<float(*)[2]>(&y_[n][2 * i]);
  }
  // Makes zeros positive. Their signs depend on chunks that a row does not see.
  __device__ void ClearSigns() {
    ForEach([](int32_t, float& y) { y += 0.0f; });
  }

  // Returns the sum of the weights of row `i` over all segments.
  __device__ float sum(int32_t i) const { return merged_[i].sum; }

  // Writes this lane's elements of row `i` below `dims`, a multiple of 8, to `row`.
  __device__ void Write(int32_t i, float* row, int32_t dims = kDims) const {
    SLUICE_UNROLL
    for (int32_t n = 0; n < kBlocks; ++n) {
      const int32_t first = (FirstBlock() + n) * 8;
      if (first >= dims) continue;
      StoreWhole(Pack<float, 2>{{y_[n][2 * i], y_[n][2 * i + 1]}}, row + first + Lane() % 4 * 2);
    }
  }

  // Writes the segment's sums of row `i` to a record of y's first `dims` features.
  __device__ void WriteRecord(int32_t i, float* record, int32_t dims) const {
    Write(i, record, dims);
    if (Lane() % 4 == 0 && FirstBlock() == 0)
      StoreWhole(RecordTail{largest_[i], sum_[i]}, record + dims);
  }

 private:
  __device__ int32_t FirstKeyOf(int32_t i) const { return kShaped ? first_[i] : 0; }
  // Returns the first segment that row `i` sees.
  __device__ int32_t FirstSegment(int32_t i) const {
    constexpr int32_t kSegment = kSegmentTokens;
    return FirstKeyOf(i) / kSegment;
  }

  // Returns the first block of 8 features that the warp has.
  static __device__ int32_t FirstBlock() { return kShare == 1 ? 0 : Warp() * kBlocks; }
  // Returns the factor of scores.
  __device__ float Factor() const { return kShaped ? kLog2E : shape_.scale * kLog2E; }

  // Applies scale, soft cap and bias if they are not only a factor, and hides the scores of keys
  // that rows do not see.
  template <int32_t kColumns>
  __device__ void Shape(int32_t first, float (&scores)[kColumns][4]) const {
    if constexpr (kShaped) {
      SLUICE_UNROLL
      for (int32_t n = 0; n < kColumns; ++n) {
        for (int32_t i = 0; i < 4; ++i) {
          scores[n][i] = ShapedScore(scores[n][i], i / 2, first + Column(n, i));
        }
      }
    }
    Hide(first, scores);
  }

  // Returns the largest score of row `i`.
  template <int32_t kColumns>
  static __device__ float Largest(const float (&scores)[kColumns][4], int32_t i) {
    float largest = -INFINITY;
    SLUICE_UNROLL
    for (int32_t n = 0; n < kColumns; ++n) {
      largest = fmaxf(largest, fmaxf(scores[n][2 * i], scores[n][2 * i + 1]));
    }
    return LaneReduce<4>(largest, Max());
  }

  // Brings the maxima up to the chunk's largest scores, and the sums y to the new maxima. keep[i]
  // becomes the factor of row i.
  __device__ void Raise(const float (&largest)[2], float (&keep)[2]) {
    SLUICE_UNROLL
    for (int32_t i = 0; i < 2; ++i) {
      const float raised = fmaxf(largest_[i], largest[i] * Factor());
      keep[i] = Exp2(largest_[i] - ShiftOf(raised));
      largest_[i] = raised;
    }
    if (Ballot(keep[0] != 1 || keep[1] != 1) == 0) return;
    ForEach([&](int32_t i, float& y) { y *= keep[i]; });
  }

  // Adds the sums of a chunk's weights.
  __device__ void AddSums(const float (&sums)[2], const float (&keep)[2]) {
    for (int32_t i = 0; i < 2; ++i) sum_[i] = fmaf(sum_[i], keep[i], sums[i]);
  }

  // Returns the column of element [n][i] of scores.
  static __device__ int32_t Column(int32_t n, int32_t i) { return n * 8 + Lane() % 4 * 2 + i % 2; }

  // Replaces the scores of keys that a row does not see by -inf, and the score of its only key by
  // zero. A score that is not finite stays so.
  template <int32_t kColumns>
  __device__ void Hide(int32_t first, float (&scores)[kColumns][4]) const {
    if (first + kColumns * 8 > least_visible_) {
      SLUICE_UNROLL
      for (int32_t n = 0; n < kColumns; ++n) {
        for (int32_t i = 0; i < 4; ++i) {
          const int32_t key = first + Column(n, i);
          if (key >= visible_[i / 2]) scores[n][i] = -INFINITY;
          if (key + 1 == visible_[i / 2] && key == FirstKeyOf(i / 2)) scores[n][i] -= scores[n][i];
        }
      }
    }
    if (kShaped && first < most_first_) {
      SLUICE_UNROLL
      for (int32_t n = 0; n < kColumns; ++n) {
        for (int32_t i = 0; i < 4; ++i) {
          if (first + Column(n, i) < first_[i / 2]) scores[n][i] = -INFINITY;
        }
      }
    }
  }

  // Replaces this lane's scores of row `i` in a block of kWeightBlock keys by weights, and returns
  // the sum of these.
  __device__ float WeighBlock(float (*scores)[4], int32_t i) const {
    const float factor = Factor(), shift = ShiftOf(largest_[i]);
    float sums[2];
    SLUICE_UNROLL
    for (int32_t n = 0; n < 2; ++n) {
      SLUICE_UNROLL
      for (int32_t j = 0; j < 2; ++j) {
        float& score = scores[n][2 * i + j];
        score = Exp2(fmaf(score, factor, -shift));
      }
      sums[n] = scores[n][2 * i] + scores[n][2 * i + 1];
    }
    return sums[0] + sums[1];
  }

  // Returns the score of row `i` for a key, with scale, soft cap and bias.
  __device__ float ShapedScore(float score, int32_t i, int32_t key) const {
    score *= shape_.scale;
    if (shape_.soft_cap != 0) score = shape_.soft_cap * tanhf(score / shape_.soft_cap);
    if (bias_[i] != nullptr && key < visible_[i]) score += bias_[i][key];
    return score;
  }

  // Replaces the scores of the chunk at `first` by weights. These have no common maximum, and are
  // not divided: a row's sum is 1, the sum of its first segment.
  template <int32_t kColumns>
  __device__ void WeighBySilu(int32_t first, float (&scores)[kColumns][4]) {
    constexpr int32_t kSegment = kSegmentTokens;
    SLUICE_UNROLL
    for (int32_t n = 0; n < kColumns; ++n) {
      for (int32_t i = 0; i < 4; ++i) {
        const int32_t key = first + Column(n, i);
        const float score = ShapedScore(scores[n][i], i / 2, key);
        const bool seen = key >= first_[i / 2] && key < visible_[i / 2];
        scores[n][i] = seen ? shape_.silu_share * (score / (1.0f + expf(-score))) : 0.0f;
      }
    }
    SLUICE_UNROLL
    for (int32_t i = 0; i < 2; ++i) {
      largest_[i] = 0;
      sum_[i] = Lane() % 4 == 0 && first / kSegment == FirstSegment(i) ? 1.0f : 0.0f;
    }
  }

  // Calls f(i, y) for the elements of this lane, where i is 0 or 1 for its rows.
  template <typename Function>
  __device__ void ForEach(Function f) {
    SLUICE_UNROLL
    for (int32_t n = 0; n < kBlocks; ++n) {
      for (int32_t i = 0; i < 4; ++i) f(i / 2, y_[n][i]);
    }
  }

  // Adds the value of key `key` of the values. The weights are the columns of the 8 keys around it.
  __device__ void AddValue(const TurnedRows<T, kDims>& values, int32_t key,
                           const float (&weights)[4]) {
    float weight[2];
    for (int32_t i = 0; i < 2; ++i) {
      const float held = key % 2 == 0 ? weights[2 * i] : weights[2 * i + 1];
      weight[i] = Shuffle(held, Lane() / 4 * 4 + key % 8 / 2);
    }
    SLUICE_UNROLL
    for (int32_t n = 0; n < kBlocks; ++n) {
      const auto pair = Load<2>(values.At(key, (FirstBlock() + n) * 8 + Lane() % 4 * 2));
      for (int32_t i = 0; i < 4; ++i) y_[n][i] = fmaf(weight[i / 2], pair.at[i % 2], y_[n][i]);
    }
  }

  // Calls f(y, merged) for the elements of row `i`.
  template <typename Function>
  __device__ void ForRow(int32_t i, Function f) {
    SLUICE_UNROLL
    for (int32_t n = 0; n < kBlocks; ++n) {
      for (int32_t j = 0; j < 2; ++j) f(y_[n][2 * i + j], Total(n, 2 * i + j));
    }
  }
  __device__ float& Total(int32_t n, int32_t i) {
    if constexpr (kInRegisters) {
      return total_[n][i];
    } else {
      return totals_[(n * 4 + i) * stride_];
    }
  }

  float* totals_;
  const int32_t stride_;
  const ScoreShape& shape_;
  // The first keys that rows see, and their bias by key; only used if kShaped.
  int32_t first_[2], least_first_, most_first_;
  const float* bias_[2];
  int32_t visible_[2];
  int32_t most_visible_, least_visible_;  // of the warp's queries
  float largest_[2] = {-INFINITY, -INFINITY};
  float sum_[2] = {};  // of the lane's weights, and after a segment ends of the row's weights
  float y_[kBlocks][4] = {};
  RecordTail merged_[2];
  float total_[kInRegisters ? kBlocks : 1][4];
};

}  // namespace sluice::kernels::cuda
