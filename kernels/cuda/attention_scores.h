// The scores of a chunk of keys, and the values that describe queries, segments and their merge.
// Device code only.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/vector.h"
#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {

inline constexpr float kLog2E = 1.44269504f;

inline constexpr int32_t kAttentionThreads = kTileQueries / kWarpQueries * kWarp;

// Up to this head width, registers hold both the sums of a segment and the merged sums. For wider
// heads the merged sums are in memory.
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

// The scores of kKeys keys. Later they are replaced by their weights.
template <int32_t kKeys>
using Scores = float[kKeys / 8][4];

// Adds q . k for the rows of the warp and kKeys keys, whose first column is 8 first_block. A Row is
// an array of features.
template <int32_t kDims, int32_t kKeys, typename Row, int32_t kBlocks>
__device__ inline void AddScores(const Row* q, const Row* keys, float (&scores)[kBlocks][4],
                                 int32_t first_block) {
  if constexpr (sizeof(q[0][0]) == sizeof(float)) {
    using Four = Floats<4>;
    SLUICE_UNROLL
    for (int32_t n = 0; n < kKeys / 8; ++n) {
      float(&sums)[4] = scores[first_block + n];
      SLUICE_ROLLED
      for (int32_t d = 0; d < kDims; d += 4) {
        Four a[2], b[2];
        for (int32_t i = 0; i < 2; ++i) {
          a[i] = Load<4>(&q[Lane() / 4 + 8 * i][d]);
          b[i] = Load<4>(&keys[n * 8 + Lane() % 4 * 2 + i][d]);
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
    SLUICE_UNROLL
    for (int32_t d = 0; d < kDims; d += 16) {
      uint32_t a[4];
      LoadMatrices<false>(&q[Lane() % 16][d + Lane() / 16 * 8], a);
      SLUICE_UNROLL
      for (int32_t n = 0; n < kKeys / 8; n += 2) {
        uint32_t b[4];
        LoadMatrices<false>(&keys[n * 8 + Lane() / 16 * 8 + Lane() % 8][d + Lane() / 8 % 2 * 8], b);
        MultiplyAdd(scores[first_block + n], a, {b[0], b[1]});
        MultiplyAdd(scores[first_block + n + 1], a, {b[2], b[3]});
      }
    }
  }
}

template <typename T>
__device__ inline bool IsFinite(T value) {
  return fabsf(Widen(value)) < INFINITY;
}

}  // namespace sluice::kernels::cuda
