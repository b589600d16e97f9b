// Log-probabilities of given tokens from the input of a head, without writing logits:
//
//   logprob[r] = z[r, target[r]] - log sum_j exp z[r, j],  z = cap(x W + bias)
//
// with cap(z) = soft_cap tanh(z / soft_cap), or z if soft_cap is 0. Logits are computed as in
// Project (kernels/cuda/projection.h), with the same bits. Their exponentials are summed in float
// over fixed blocks of columns, relative to the largest logit of the block. The blocks' sums are
// added in double in an order that depends only on n. So a row's bits do not depend on other rows.
// They differ from Sample (kernels/cuda/sample.h) for the same logits only by rounding.
#pragma once

#include <cstdint>

#include "kernels/cuda/bfloat16.h"
#include "kernels/cuda/row_tiles.h"
#include "kernels/cuda/rows.h"
#include "kernels/cuda/sample.h"
#include "kernels/simt/stream.h"

namespace sluice::kernels::cuda {

inline constexpr int32_t kScoreColumns = 32;  // of a block

// The sum of exponentials of a row's logits in a block of columns.
struct ScorePart {
  float largest;  // -inf if all are -inf
  float sum;      // of exp(z - largest); NaN if a logit is NaN or +inf
};

// Returns the number of parts of `rows` rows of `n` logits.
constexpr int64_t ScoreParts(int64_t rows, int64_t n) {
  return rows * ((n + kScoreColumns - 1) / kScoreColumns);
}

template <typename T>  // float, BFloat16
struct ScoreArgs {
  const T* x;       // [rows, k]
  const T* weight;  // packed [k, n], as for Project; columns after n are never counted
  const T* bias;    // [n] or nullptr
  int32_t k;
  int32_t n;
  float soft_cap;
  RowTiles tiles;
  const SampleRequest* requests;  // [rows], each with a target
  LiveRows rows;
  ScorePart* parts;      // [ScoreParts(rows.capacity, n)] of scratch
  float* target_logits;  // [rows] of scratch
  const int32_t* first;  // as in Sample, like `outcomes`
  SampleOutcome* outcomes;
};

template <typename T>
void Score(Stream& stream, const ScoreArgs<T>& args);

}  // namespace sluice::kernels::cuda
