// The largest element and the Euclidean norm of each row. The only guard is n >= 1. Sizes are read
// on the device, so that one captured graph serves all sizes within its capacity.
#pragma once

#include <cstdint>

#include "kernels/simt/stream.h"

namespace sluice::kernels::cuda {

struct RowReduceSizes {
  int32_t rows, n;
};

struct RowReduceArgs {
  const float* x;  // [rows, n], rows `row_stride` apart
  int64_t row_stride;
  const RowReduceSizes* sizes;  // on the device
  int32_t max_rows;
  float* out;              // [rows]
  int32_t* ids = nullptr;  // RowMax only: [rows] or nullptr
};

// Returns whether a graph captured for `args` serves these sizes.
constexpr bool Accepts(const RowReduceArgs& args, const RowReduceSizes& sizes) {
  return sizes.rows >= 0 && sizes.rows <= args.max_rows && sizes.n >= 1 &&
         sizes.n <= args.row_stride;
}

// Finds the first of the largest elements, or the first NaN if there is one.
void RowMax(Stream& stream, const RowReduceArgs& args);
// Computes sqrt(sum x^2), summed in double: within about one ulp, without overflow.
void RowNorm(Stream& stream, const RowReduceArgs& args);

}  // namespace sluice::kernels::cuda
