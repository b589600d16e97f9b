// The k largest values of each row, in descending order; equal values by ascending index, NaN last.
// The only guard is 1 <= k <= n. Sizes are read on the device, so that one captured graph serves
// all sizes within its capacity.
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
  float* values;      // [rows, k], rows max_k apart, like ids
  int32_t* ids;
};

// Returns whether a graph captured for `args` serves these sizes.
constexpr bool Accepts(const TopKArgs& args, const TopKSizes& sizes) {
  return sizes.rows >= 0 && sizes.rows <= args.max_rows && sizes.k >= 1 && sizes.k <= args.max_k &&
         sizes.n >= sizes.k && sizes.n <= args.row_stride;
}

void TopK(Stream& stream, const TopKArgs& args);

}  // namespace sluice::kernels::cuda
