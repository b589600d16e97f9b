// Top-k selection and sampling from one row of logits.
#pragma once

#include <cstdint>

#include "kernels/cpu/profile.h"
#include "kernels/sampling.h"

namespace sluice::kernels {

// The k largest of x[0, n) in descending order; of equal values the lower index comes first. NaN
// sorts last. Requires 1 <= k <= n: the only guard, n and k are run-time values.
//   values: [k] or nullptr, ids: [k], scratch: [TopKScratch(n, k)].
int64_t TopKScratch(int64_t n, int64_t k);
void TopK(Profile profile, const float* x, int64_t n, int64_t k, float* values, int32_t* ids,
          uint64_t* scratch);

// log(sum(exp(x))), summed over the fixed blocks of columns of log_sum.h that are merged in
// ascending order. NaN when any x is NaN or +inf; -inf when all are -inf. In double, so that x[i] -
// LogSumExp(x) keeps its accuracy where logits are large. Requires n >= 1.
double LogSumExp(Profile profile, const float* x, int64_t n);

struct SampleRow {
  float* logits;  // [n]; where there are edits, changed during the call
  int64_t n;
  int32_t num_top;      // how many candidates to report, <= n
  int32_t* top_ids;     // [num_top] or nullptr when num_top is 0
  float* top_logprobs;  // [num_top], log-probabilities of the full distribution at temperature 1
  const LogitEdits* edits = nullptr;  // nullptr: none
};

// Random numbers: Philox4x32-10, key = seed, counter = (token_index, sample, draw), so a seeded
// request draws the same token whatever batch it rides in. The uniform number is the first two
// words, (w0 * 2^32 + w1) >> 11 in units of 2^-53. A -inf logit is a token of probability 0. The
// candidates of a row that the model left not finite stay unwritten. scratch: [SampleScratch(n)].
int64_t SampleScratch(int64_t n);
SampleResult Sample(Profile profile, const SampleParams& params, const SampleRow& row,
                    uint64_t* scratch);

// How many of the most likely of n tokens a draw looks at; 0: at all of them.
int64_t CandidatesToDraw(const SampleParams& params, int64_t n);

// Sample's draw, without edits, from the most likely tokens alone: the place of the token drawn
// among them. Requires a row whose sum is finite.
//   logits: [k] in descending order, k = CandidatesToDraw(params, n) > 0; scratch: [k]
int64_t SampleCandidates(Profile profile, const SampleParams& params, const float* logits,
                         int64_t k, int64_t n, float* scratch);

}  // namespace sluice::kernels
