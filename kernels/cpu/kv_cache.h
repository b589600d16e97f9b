// The paged keys and values of one layer.
//
// A page holds kPageTokens consecutive positions of one sequence. Keys are stored transposed inside
// the page, so that a query is multiplied with kPageTokens keys at once without horizontal sums:
//   k: [pages, kv_heads, head_dim, kPageTokens]     v: [pages, kv_heads, kPageTokens, head_dim]
// A KV slot is page * kPageTokens + position % kPageTokens. Slots that were never written are never
// used as data (tests fill them with NaN).
#pragma once

#include <cstdint>

#include "kernels/kv_segment.h"

namespace sluice::kernels {

inline constexpr int kPageTokens = 16;

struct KvLayer {
  float* k;
  float* v;
  int32_t kv_heads;
  int32_t head_dim;

  int64_t page_floats() const { return int64_t{kv_heads} * head_dim * kPageTokens; }
};

}  // namespace sluice::kernels
