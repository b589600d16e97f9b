// The scores of a chunk of keys, and the values that describe queries, segments and their merge.
// Device code only.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/kv_cache.h"
#include "kernels/cuda/vector.h"
#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {

inline constexpr float kLog2E = 1.44269504f;

inline constexpr int32_t kAttentionWarps = kTileQueries / kWarpQueries;
inline constexpr int32_t kAttentionThreads = kAttentionWarps * kWarp;

// Up to this number of features, a warp's registers hold both the sums of a segment and the merged
// sums. For more features the merged sums are in memory.
inline constexpr int32_t kMaxRegisterDims = 64;

// A record of a segment's sums begins with y, padded to a multiple of 8, followed by this tail.
inline constexpr int32_t kRecordTail = 8;
struct alignas(8) RecordTail {
  float largest;  // score, times log2(e)
  float sum;      // of the weights
};

// Returns the first key that a query at `position` sees.
__device__ inline int32_t FirstKey(int32_t position, int32_t window) {
  return window == 0 || position < window ? 0 : position - window + 1;
}

// How the scores of a tile's queries are converted to the scores of the softmax. If attention is
// not shaped, only `scale` is read.
struct ScoreShape {
  float scale;
  float soft_cap;
  int32_t window;
  const float* bias;  // of head 0 and key 0 seen from position 0, or nullptr
  int64_t bias_stride;
  float silu_share;  // 0 for the softmax
};

// The place of a query in q and in the output. A query beyond the tile's end sees nothing.
struct alignas(16) QueryPlace {
  int32_t row, head;
  int32_t position;
  int32_t visible;  // the number of keys that it sees
};

// The factors that bring two parts' sums to their common maximum.
struct MergeFactors {
  float keep, take;

  __device__ float Merge(float sum, float part) const { return fmaf(part, take, sum * keep); }
};

// Returns the number to subtract from scores; `largest` is the largest score. If all scores are
// -inf, their weights become 0.
__device__ inline float ShiftOf(float largest) { return largest == -INFINITY ? 0.0f : largest; }

// Adds a later segment and returns the factors for its y.
__device__ inline MergeFactors AddSegment(RecordTail& merged, const RecordTail& segment) {
  const float largest = fmaxf(merged.largest, segment.largest), shift = ShiftOf(largest);
  const MergeFactors factors = {Exp2(merged.largest - shift), Exp2(segment.largest - shift)};
  merged = {largest, factors.Merge(merged.sum, segment.sum)};
  return factors;
}

// Rows of kDims features in shared memory, without padding and turned (kernels/cuda/kv_cache.h).
template <typename T, int32_t kDims>
struct TurnedRows {
  T* first;

  __device__ T* At(int32_t row, int32_t d) const {
    return first + row * kDims + TurnedPlace<T>(d, row % 8);
  }
  // Returns the rows from `row` on, a multiple of 8.
  __device__ TurnedRows From(int32_t row) const { return {first + row * kDims}; }
};

// The 16 queries of a warp. They stay in registers if they fit.
template <typename T, int32_t kDims>
class Queries {
 public:
  // `rows` must stay unchanged unless kInRegisters.
  static constexpr bool kInRegisters = sizeof(T) == sizeof(BFloat16) && kDims <= 128;

  __device__ explicit Queries(const TurnedRows<T, kDims>& rows) : rows_(rows) {
    if constexpr (kInRegisters) {
      SLUICE_UNROLL
      for (int32_t d = 0; d < kDims; d += 16) Read(d, held_[d / 16]);
    }
  }

  // Returns features [d, d + 16) as operand a of MultiplyAdd.
  __device__ void Get(int32_t d, uint32_t (&a)[4]) const {
    if constexpr (kInRegisters) {
      SLUICE_UNROLL
      for (int32_t i = 0; i < 4; ++i) a[i] = held_[d / 16][i];
    } else {
      Read(d, a);
    }
  }
  __device__ const TurnedRows<T, kDims>& rows() const { return rows_; }

 private:
  __device__ void Read(int32_t d, uint32_t (&a)[4]) const {
    LoadMatrices<false>(rows_.At(Lane() % 16, d + Lane() / 16 * 8), a);
  }

  TurnedRows<T, kDims> rows_;
  uint32_t held_[kInRegisters ? kDims / 16 : 1][4];
};

// The scores of kKeys keys. Later they are replaced by their weights.
template <int32_t kKeys>
using Scores = float[kKeys / 8][4];

// Adds q . k for the queries and kKeys keys to the scores from scores[first_block] on.
template <int32_t kKeys, int32_t kBlocks, typename T, int32_t kDims>
__device__ inline void AddScores(const Queries<T, kDims>& queries, const TurnedRows<T, kDims>& keys,
                                 float (&scores)[kBlocks][4], int32_t first_block) {
  if constexpr (sizeof(T) == sizeof(float)) {
    using Four = Floats<4>;
    SLUICE_UNROLL
    for (int32_t n = 0; n < kKeys / 8; ++n) {
      float(&sums)[4] = scores[first_block + n];
      SLUICE_ROLLED
      for (int32_t d = 0; d < kDims; d += 4) {
        Four a[2], b[2];
        for (int32_t i = 0; i < 2; ++i) {
          a[i] = Load<4>(queries.rows().At(Lane() / 4 + 8 * i, d));
          b[i] = Load<4>(keys.At(n * 8 + Lane() % 4 * 2 + i, d));
        }
        SLUICE_UNROLL
        for (int32_t e = 0; e < 4; ++e) {
          SLUICE_UNROLL
          for (int32_t i = 0; i < 4; ++i) {
            sums[i] = fmaf(a[i / 2].at[e], b[i % 2].at[e], sums[i]);
          }
        }
      }
    }
  } else {
    // Addresses differ in the lowest bits only by 4 values, the others are constants.
    const T* at[4];
    const int32_t turn = Lane() / 8 % 2 ^ Lane() % 8;
    SLUICE_UNROLL
    for (int32_t i = 0; i < 4; ++i) {
      at[i] = keys.first + (Lane() / 16 * 8 + Lane() % 8) * kDims + ((2 * i) ^ turn) * 8;
    }
    SLUICE_UNROLL
    for (int32_t d = 0; d < kDims; d += 16) {
      uint32_t a[4];
      queries.Get(d, a);
      SLUICE_UNROLL
      for (int32_t n = 0; n < kKeys / 8; n += 2) {
        uint32_t b[4];
        LoadMatrices<false>(at[d / 16 % 4] + d / 64 * 64 + n * 8 * kDims, b);
        MultiplyAdd(scores[first_block + n], a, {b[0], b[1]});
        MultiplyAdd(scores[first_block + n + 1], a, {b[2], b[3]});
      }
    }
  }
}

// The weights of a chunk for a warp's queries, as the products with values read them: rounded pairs
// in the order of operand a of MultiplyAdd, or floats in the order of scores.
template <typename T, int32_t kChunk>
struct Weights {
  static constexpr bool kPairs = sizeof(T) == sizeof(BFloat16);
  static constexpr int32_t kPacks = kPairs ? 1 : 2;  // of a lane, for kWeightBlock keys

  Pack<uint32_t> at[kChunk / kWeightBlock][kPacks];

  // Sets the weights of a block of keys.
  __device__ void Set(int32_t block, const float (*weights)[4]) {
    SLUICE_UNROLL
    for (int32_t i = 0; i < 4; ++i) {
      if constexpr (kPairs) {
        at[block][0].at[i] = RoundToPair(weights[i / 2][i % 2 * 2], weights[i / 2][i % 2 * 2 + 1]);
      } else {
        at[block][0].at[i] = BitsOf(weights[0][i]);
        at[block][1].at[i] = BitsOf(weights[1][i]);
      }
    }
  }
  // Returns element [n][i] of the scores' layout.
  __device__ float Get(int32_t n, int32_t i) const {
    const uint32_t word = at[n / 2][kPairs ? 0 : n % 2].at[kPairs ? n % 2 * 2 + i / 2 : i];
    if constexpr (kPairs) return Widen(BFloat16{static_cast<uint16_t>(word >> i % 2 * 16)});
    return FloatOf(word);
  }

 private:
  static __device__ uint32_t BitsOf(float x) {
    uint32_t bits;
    __builtin_memcpy(&bits, &x, sizeof(bits));
    return bits;
  }
  static __device__ float FloatOf(uint32_t bits) {
    float x;
    __builtin_memcpy(&x, &bits, sizeof(x));
    return x;
  }
};

template <typename T>
__device__ inline bool IsFinite(T value) {
  return fabsf(Widen(value)) < INFINITY;
}

}  // namespace sluice::kernels::cuda
