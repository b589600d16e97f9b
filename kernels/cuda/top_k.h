// The k largest of each row, in descending order; of equal values the lower index comes first, NaN
// sorts last. The only guard is 1 <= k <= n: sizes are read on the device, so one capture serves
// all within its capacity.
#pragma once

#include <cstdint>

#include "kernels/simt/stream.h"

namespace sluice::kernels::cuda {

struct TopKSizes {
  int32_t rows, n, k;
};

struct TopKArgs {
  const float* x;  // [rows, n], rows `row_stride` apart
  int64_t row_stride;
  const TopKSizes* sizes;  // on the device
  int32_t max_rows;
  int32_t max_k;
  uint64_t* scratch;  // [max_rows, max_k]
  float* values;      // [rows, k], rows max_k apart, as the next
  int32_t* ids;
};

// The range guard: does what was captured for `args` serve these sizes?
constexpr bool Accepts(const TopKArgs& args, const TopKSizes& sizes) {
  return sizes.rows >= 0 && sizes.rows <= args.max_rows && sizes.k >= 1 && sizes.k <= args.max_k &&
         sizes.n >= sizes.k && sizes.n <= args.row_stride;
}

void TopK(Stream& stream, const TopKArgs& args);

}  // namespace sluice::kernels::cuda
