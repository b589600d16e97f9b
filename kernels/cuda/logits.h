// The last changes to logits before they are scored: a soft cap, and the exclusion of tokens.
#pragma once

#include <cstdint>

#include "kernels/cuda/rows.h"
#include "kernels/simt/stream.h"

namespace sluice::kernels::cuda {

// Replaces each logit x by soft_cap * tanh(x / soft_cap), and the logits of excluded tokens by
// -inf.
struct LogitsArgs {
  float* logits;            // [rows, n], rows `stride` apart
  int32_t n;                // >= 1
  int64_t stride;           // >= n; the elements after the n columns may change
  float soft_cap;           // >= 0; 0 means no cap
  const int32_t* excluded;  // indices in [0, n); row r has excluded[begin[r], begin[r + 1])
  const int32_t* begin;     // [rows + 1]
  LiveRows rows;
};

void FinishLogits(Stream& stream, const LogitsArgs& args);

}  // namespace sluice::kernels::cuda
