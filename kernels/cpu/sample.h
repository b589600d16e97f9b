// Top-k selection and sampling from one row of logits.
#pragma once

#include <cstdint>

#include "kernels/cpu/profile.h"
#include "kernels/sampling.h"

namespace sluice::kernels {

// Finds the k largest values of x[0, n) in descending order; equal values by ascending index, NaN
// last. Requires 1 <= k <= n (checked, because n and k are run-time values).
//   values: [k] or nullptr, ids: [k], scratch: [TopKScratch(n, k)]
int64_t TopKScratch(int64_t n, int64_t k);
void TopK(Profile profile, const float* x, int64_t n, int64_t k, float* values, int32_t* ids,
          uint64_t* scratch);

// Returns log(sum(exp(x))), summed over the fixed blocks of columns of log_sum.h, which are merged
// in ascending order. Returns NaN if any x is NaN or +inf, and -inf if all are -inf. The result is
// a double, so that x[i] - LogSumExp(x) stays accurate for large logits. Requires n >= 1.
double LogSumExp(Profile profile, const float* x, int64_t n);

struct SampleRow {
  float* logits;  // [n]; if there are edits, changed during the call and restored
  int64_t n;
  int32_t num_top;      // number of candidates to report, <= n
  int32_t* top_ids;     // [num_top], or nullptr if num_top is 0
  float* top_logprobs;  // [num_top], log-probabilities of the full distribution at temperature 1
  const LogitEdits* edits = nullptr;  // nullptr means none
};

// Draws a token. Random numbers are Philox4x32-10 with key = seed and counter = (token_index,
// sample, draw), so that a seeded request draws the same token in any batch. The uniform number is
// made of the first two words: (w0 * 2^32 + w1) >> 11 in units of 2^-53. A token whose logit is
// -inf has probability 0. If the model's logits are not finite, the row's candidates stay
// unwritten. scratch: [SampleScratch(n)].
int64_t SampleScratch(int64_t n);
SampleResult Sample(Profile profile, const SampleParams& params, const SampleRow& row,
                    uint64_t* scratch);

// Returns the number of most likely tokens that a draw from n tokens examines, or 0 if it examines
// all of them.
int64_t CandidatesToDraw(const SampleParams& params, int64_t n);

// Makes the same draw as Sample, without edits, but reads only the most likely tokens. Returns the
// index of the drawn token among them. Requires a row whose sum is finite.
//   logits: [k] in descending order, k = CandidatesToDraw(params, n) > 0; scratch: [k]
int64_t SampleCandidates(Profile profile, const SampleParams& params, const float* logits,
                         int64_t k, int64_t n, float* scratch);

}  // namespace sluice::kernels
