// Diverse selection among the candidates of each row (kernels/diversity.h has the formula). The
// lists from Sample are cut to the chosen candidates, in the order in which they are chosen. The
// vectors are columns of the head's matrix. Each product is summed in double by one warp, and
// nothing depends on other rows. The sizes of a row are read on the device, so one captured graph
// serves all sizes.
#pragma once

#include <cstdint>

#include "kernels/cuda/bfloat16.h"
#include "kernels/cuda/rows.h"
#include "kernels/cuda/sample.h"
#include "kernels/diversity.h"
#include "kernels/simt/stream.h"

namespace sluice::kernels::cuda {

struct DiverseRequest {
  float diversity;  // [0, 1]; 0 leaves the row's lists as they are
  int32_t pool;     // candidates in the row's lists, at most kMaxDiversePool and max_top
  int32_t count;    // candidates to choose, at most `pool` and kMaxDiverse
};

// Returns whether a graph that was captured with `max_top` serves the row.
constexpr bool Accepts(int32_t max_top, const DiverseRequest& request) {
  return request.pool >= 1 && request.pool <= max_top && request.pool <= kMaxDiversePool &&
         request.count >= 1 && request.count <= request.pool && request.count <= kMaxDiverse;
}

template <typename T>  // float, BFloat16
struct DiverseArgs {
  const T* weight;  // [k, columns], or packed (kernels/cuda/packed.h)
  bool packed;
  int32_t k;
  int32_t columns;
  const DiverseRequest* requests;  // [rows]
  LiveRows rows;
  const int32_t* first;           // as in Sample, like `outcomes`
  const SampleOutcome* outcomes;  // a row without a token keeps its lists
  int32_t max_top;
  double* factors;   // [rows.capacity, DiverseFactor(max_top)] of scratch
  int32_t* top_ids;  // [rows, max_top], like the others; column ids
  float* top_logprobs;
  float* top_scores;  // not NaN
};

// Returns how many numbers of scratch a row needs.
SLUICE_HOST_DEVICE constexpr int64_t DiverseFactor(int32_t max_top) {
  const int64_t pool = max_top < kMaxDiversePool ? max_top : kMaxDiversePool;
  return pool * (pool < kMaxDiverse ? pool : kMaxDiverse);
}

template <typename T>
void Diversify(Stream& stream, const DiverseArgs<T>& args);

}  // namespace sluice::kernels::cuda
