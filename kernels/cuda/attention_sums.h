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
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/vector.h"
#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {

// With kShaped, there may be windows, soft caps and biases.
template <typename T, int32_t kDims, bool kShaped>
class WarpSums {
 public:
  static constexpr int32_t kChunk = ChunkKeys(kDims);

  // `queries` are the warp's, and `totals` the memory of the block for merged sums.
  __device__ WarpSums(const QueryPlace* queries, float* totals, const ScoreShape& shape)
      : totals_(totals), shape_(shape) {
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
    float factor = shape_.scale * kLog2E;
    if constexpr (kShaped) {
      if (shape_.silu_share != 0) return WeighBySilu(first, scores);
      Shape(first, scores);
      factor = kLog2E;
    }
    Hide(first, scores);
    float keep[2];
    SLUICE_UNROLL
    for (int32_t i = 0; i < 2; ++i) {
      float largest = -INFINITY;
      SLUICE_UNROLL
      for (int32_t n = 0; n < kChunk / 8; ++n) {
        largest = fmaxf(largest, fmaxf(scores[n][2 * i], scores[n][2 * i + 1]));
      }
      largest = fmaxf(largest_[i], LaneReduce<4>(largest, Max()) * factor);
      const float shift = ShiftOf(largest);
      keep[i] = Exp2(largest_[i] - shift);
      largest_[i] = largest;
      float sum = 0;
      SLUICE_UNROLL
      for (int32_t n = 0; n < kChunk / 8; n += kWeightBlock / 8) {
        sum += WeighBlock(&scores[n], i, factor, shift);
      }
      sum_[i] = fmaf(sum_[i], keep[i], sum);
    }
    Rescale(keep);
  }

  // Adds the weighted values of kKeys keys, whose first column is 8 first_block.
  template <int32_t kKeys, typename Row>
  __device__ void AddValues(const Row* values, const Scores<kChunk>& weights, int32_t first_block) {
    if constexpr (sizeof(T) == sizeof(float)) {
      SLUICE_UNROLL
      for (int32_t n = 0; n < kKeys / 8; ++n) {
        const float(&row)[4] = weights[first_block + n];
        SLUICE_ROLLED
        for (int32_t key = 0; key < 8; ++key) AddValue(values[n * 8 + key], row, key);
      }
    } else {
      SLUICE_UNROLL
      for (int32_t k = 0; k < kKeys / 16; ++k) {
        const float(&low)[4] = weights[first_block + 2 * k];
        const float(&high)[4] = weights[first_block + 2 * k + 1];
        const uint32_t a[4] = {RoundToPair(low[0], low[1]), RoundToPair(low[2], low[3]),
                               RoundToPair(high[0], high[1]), RoundToPair(high[2], high[3])};
        SLUICE_UNROLL
        for (int32_t n = 0; n < kDims / 8; n += 2) {
          uint32_t b[4];
          LoadMatrices<true>(&values[k * 16 + Lane() % 16][n * 8 + Lane() / 16 * 8], b);
          MultiplyAdd(y_[n], a, {b[0], b[1]});
          MultiplyAdd(y_[n + 1], a, {b[2], b[3]});
        }
      }
    }
  }

  // Adds the values of the chunk at `first` that are not finite, and were replaced by zeros, to
  // the rows that see them. value_of(position) returns the features of a position in [lowest,
  // context). This rare path works on copies in memory, so that it takes no registers from the
  // usual path.
  template <typename ValueOf>
  __device__ void AddCleared(const Scores<kChunk>& weights, int32_t first, int32_t lowest,
                             int32_t context, int32_t dim, ValueOf value_of) {
    float y[kDims / 8][4], copies[kChunk / 8][4];
    SLUICE_UNROLL
    for (int32_t n = 0; n < kDims / 8; ++n) {
      for (int32_t i = 0; i < 4; ++i) y[n][i] = y_[n][i];
    }
    SLUICE_UNROLL
    for (int32_t n = 0; n < kChunk / 8; ++n) {
      for (int32_t i = 0; i < 4; ++i) copies[n][i] = weights[n][i];
    }
    SLUICE_ROLLED
    for (int32_t key = first < lowest ? lowest - first : 0; key < kChunk && first + key < context;
         ++key) {
      const T* const v = value_of(first + key);
      float weight[2];
      for (int32_t i = 0; i < 2; ++i) {
        const float held = copies[key / 8][2 * i + key % 2];
        weight[i] = Widen(Narrow<T>(Shuffle(held, Lane() / 4 * 4 + key % 8 / 2)));
      }
      SLUICE_ROLLED
      for (int32_t d = Lane() % 4 * 2; d < dim; d += d % 2 == 0 ? 1 : 7) {
        if (IsFinite(v[d])) continue;
        for (int32_t i = 0; i < 2; ++i) {
          float& sum = y[d / 8][2 * i + d % 2];
          if (kShaped && first + key < first_[i]) continue;
          if (first + key < visible_[i]) sum = fmaf(weight[i], Widen(v[d]), sum);
        }
      }
    }
    SLUICE_UNROLL
    for (int32_t n = 0; n < kDims / 8; ++n) {
      for (int32_t i = 0; i < 4; ++i) y_[n][i] = y[n][i];
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
  __device__ float (&Elements())[kDims / 2] { return reinterpret_cast<float(&)[kDims / 2]>(y_); }
  // Makes zeros positive. Their signs depend on chunks that a row does not see.
  __device__ void ClearSigns() {
    ForEach([](int32_t, float& y) { y += 0.0f; });
  }

  // Returns the sum of the weights of row `i` over all segments.
  __device__ float sum(int32_t i) const { return merged_[i].sum; }

  // Writes this lane's elements of row `i` below `dims`, a multiple of 8, to `row`.
  __device__ void Write(int32_t i, float* row, int32_t dims = kDims) const {
    SLUICE_UNROLL
    for (int32_t n = 0; n < kDims / 8; ++n) {
      if (n * 8 >= dims) continue;
      StoreWhole(Pack<float, 2>{{y_[n][2 * i], y_[n][2 * i + 1]}}, row + n * 8 + Lane() % 4 * 2);
    }
  }

  // Writes the segment's sums of row `i` to a record of y's first `dims` features.
  __device__ void WriteRecord(int32_t i, float* record, int32_t dims) const {
    Write(i, record, dims);
    if (Lane() % 4 == 0) StoreWhole(RecordTail{largest_[i], sum_[i]}, record + dims);
  }

 private:
  __device__ int32_t FirstKeyOf(int32_t i) const { return kShaped ? first_[i] : 0; }
  // Returns the first segment that row `i` sees.
  __device__ int32_t FirstSegment(int32_t i) const {
    constexpr int32_t kSegment = kSegmentTokens;
    return FirstKeyOf(i) / kSegment;
  }

  // Applies scale, soft cap and bias.
  template <int32_t kBlocks>
  __device__ void Shape(int32_t first, float (&scores)[kBlocks][4]) const {
    SLUICE_UNROLL
    for (int32_t n = 0; n < kBlocks; ++n) {
      for (int32_t i = 0; i < 4; ++i) {
        scores[n][i] = ShapedScore(scores[n][i], i / 2, first + Column(n, i));
      }
    }
  }

  // Returns the column of element [n][i] of scores.
  static __device__ int32_t Column(int32_t n, int32_t i) { return n * 8 + Lane() % 4 * 2 + i % 2; }

  // Replaces the scores of keys that a row does not see by -inf, and the score of its only key by
  // zero. A score that is not finite stays so.
  template <int32_t kBlocks>
  __device__ void Hide(int32_t first, float (&scores)[kBlocks][4]) const {
    if (first + kBlocks * 8 > least_visible_) {
      SLUICE_UNROLL
      for (int32_t n = 0; n < kBlocks; ++n) {
        for (int32_t i = 0; i < 4; ++i) {
          const int32_t key = first + Column(n, i);
          if (key >= visible_[i / 2]) scores[n][i] = -INFINITY;
          if (key + 1 == visible_[i / 2] && key == FirstKeyOf(i / 2)) scores[n][i] -= scores[n][i];
        }
      }
    }
    if (kShaped && first < most_first_) {
      SLUICE_UNROLL
      for (int32_t n = 0; n < kBlocks; ++n) {
        for (int32_t i = 0; i < 4; ++i) {
          if (first + Column(n, i) < first_[i / 2]) scores[n][i] = -INFINITY;
        }
      }
    }
  }

  // Replaces this lane's scores of row `i` in a block of kWeightBlock keys by weights, and returns
  // the sum of these.
  static __device__ float WeighBlock(float (*scores)[4], int32_t i, float factor, float shift) {
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

  // Multiplies the sums of row i by keep[i], unless all factors of the warp are 1.
  __device__ void Rescale(const float (&keep)[2]) {
    if (Ballot(keep[0] != 1 || keep[1] != 1) == 0) return;
    ForEach([&](int32_t i, float& y) { y *= keep[i]; });
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
  __device__ void WeighBySilu(int32_t first, Scores<kChunk>& scores) {
    constexpr int32_t kSegment = kSegmentTokens;
    SLUICE_UNROLL
    for (int32_t n = 0; n < kChunk / 8; ++n) {
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

  static constexpr bool kInRegisters = kDims <= kMaxRegisterDims;

  // Calls f(i, y) for the elements of this lane, where i is 0 or 1 for its rows.
  template <typename Function>
  __device__ void ForEach(Function f) {
    SLUICE_UNROLL
    for (int32_t n = 0; n < kDims / 8; ++n) {
      for (int32_t i = 0; i < 4; ++i) f(i / 2, y_[n][i]);
    }
  }

  template <typename Row>
  __device__ void AddValue(const Row& value, const float (&weights)[4], int32_t key) {
    float weight[2];
    for (int32_t i = 0; i < 2; ++i) {
      const float held = key % 2 == 0 ? weights[2 * i] : weights[2 * i + 1];
      weight[i] = Shuffle(held, Lane() / 4 * 4 + key / 2);
    }
    SLUICE_UNROLL
    for (int32_t n = 0; n < kDims / 8; ++n) {
      const Floats<2> pair = Load<2>(&value[n * 8 + Lane() % 4 * 2]);
      for (int32_t i = 0; i < 4; ++i) y_[n][i] = fmaf(weight[i / 2], pair.at[i % 2], y_[n][i]);
    }
  }

  // Calls f(y, merged) for the elements of row `i`.
  template <typename Function>
  __device__ void ForRow(int32_t i, Function f) {
    SLUICE_UNROLL
    for (int32_t n = 0; n < kDims / 8; ++n) {
      for (int32_t j = 0; j < 2; ++j) f(y_[n][2 * i + j], Total(n, 2 * i + j));
    }
  }
  __device__ float& Total(int32_t n, int32_t i) {
    if constexpr (kInRegisters) {
      return total_[n][i];
    } else {
      const int64_t element = int64_t{BlockIndex()} * (kDims / 2) + n * 4 + i;
      return totals_[element * kAttentionThreads + ThreadIndex()];
    }
  }

  float* totals_;
  const ScoreShape& shape_;
  // The first keys that rows see, and their bias by key; only used if kShaped.
  int32_t first_[2], least_first_, most_first_;
  const float* bias_[2];
  int32_t visible_[2];
  int32_t most_visible_, least_visible_;  // of the warp's queries
  float largest_[2] = {-INFINITY, -INFINITY};
  float sum_[2] = {};  // of the lane's weights, and after a segment ends of the row's weights
  float y_[kDims / 8][4] = {};
  RecordTail merged_[2];
  float total_[kInRegisters ? kDims / 8 : 1][4];
};

}  // namespace sluice::kernels::cuda
