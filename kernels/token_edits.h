// The parameters of a draw, and the tokens that edits of its logits name, on every device. The edits
// themselves are LogitEdits in kernels/cpu/sample.h.
#pragma once

#include <cstdint>

namespace sluice::kernels {

// One draw. Fields at their defaults switch a filter off. Filters apply in this order: temperature,
// top_k, top_p (of the mass that top_k left), min_p; each keeps at least the most likely token. The
// draw inverts the cumulative distribution of what is left: in descending order of probability when
// top_k (< n) or top_p is on, else in index order.
struct SampleParams {
  float temperature = 0.0f;  // >= 0; 0: greedy, the other filters are ignored
  int32_t top_k = 0;         // 0: off
  float top_p = 1.0f;        // (0, 1]
  float min_p = 0.0f;        // [0, 1], relative to the most likely token
  uint64_t seed = 0;
  uint64_t token_index = 0;  // index of the generated token within its sequence
  uint32_t sample = 0;       // row of the request, so that rows of one request differ
};

struct SeenToken {
  int32_t token;
  int32_t generated;  // times; 0: in the prompt only
};
struct TokenBias {
  int32_t token;
  float bias;  // finite or -inf
};

}  // namespace sluice::kernels
