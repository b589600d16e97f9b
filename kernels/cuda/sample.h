// Scoring, top-k selection and sampling of rows of logits, all in one kernel, a block per row. What
// the fields of a draw mean is said in kernels/cpu/sample.h; results agree with it up to the rounding
// of the weights.
//
// Nothing is sorted: keys (orderable value, lower index first) are unique, so the k-th largest, the
// end of the nucleus and the token drawn are each found by descending through the digits of the key.
// Weights exp((x - max) / temperature) are integers in units of 2^-40, whose sums do not depend on
// their order; smaller ones are never drawn.
#pragma once

#include <cstdint>

#include "kernels/cuda/rows.h"
#include "kernels/cuda/stream.h"

namespace sluice::kernels::cuda {

inline constexpr int32_t kMaxLogits = 1 << 22;  // columns, so that sums of weights fit 63 bits

// One sampled row.
struct SampleRequest {
  uint64_t seed;
  uint64_t token_index;
  uint32_t sample;
  float temperature;  // >= 0; 0: greedy
  int32_t top_k;      // 0, or >= n: off
  float top_p;        // (0, 1]
  float min_p;        // [0, 1]
  int32_t target;     // in [0, n): score this token; -1: draw one
  int32_t num_top;    // candidates to report, <= n and <= max_top
};

struct SampleOutcome {
  int32_t token;  // the target or what was drawn; -1 when the row is not finite
  float logprob;  // of the full distribution at temperature 1; NaN when not finite
};

struct SampleArgs {
  const float* logits;            // [rows, n]
  int32_t n;                      // 1 to kMaxLogits
  const SampleRequest* requests;  // [rows]
  LiveRows rows;
  int32_t max_top;          // 0: no row has candidates
  uint64_t* scratch;        // [rows, max_top]
  SampleOutcome* outcomes;  // [rows]
  int32_t* top_ids;     // [rows, max_top], descending, of equal ones the lower index first; what
  float* top_logprobs;  // is beyond num_top, or of a row that is not finite, stays as it is
};

void Sample(Stream& stream, const SampleArgs& args);

}  // namespace sluice::kernels::cuda
