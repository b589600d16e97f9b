// Small batched linear algebra in float. Sizes are read on the device, so that one captured graph
// serves all sizes within its capacity. Matrices are row-major and dense at their current sizes.
#pragma once

#include <cstdint>

#include "kernels/simt/stream.h"

namespace sluice::kernels::cuda {

struct MatMulSizes {
  int32_t batch, m, n, k;  // inner sizes are equal by construction
};

struct MatMulArgs {
  const float* a;            // [batch, m, k]
  const float* b;            // [batch, k, n]
  const MatMulSizes* sizes;  // on the device
  int64_t max_elements;      // of out; bounds the grid
  float* out;                // [batch, m, n]; must not overlap a or b
};

// Returns whether a graph captured for `args` serves these sizes.
constexpr bool Accepts(const MatMulArgs& args, const MatMulSizes& sizes) {
  return sizes.batch >= 1 && sizes.m >= 1 && sizes.n >= 1 && sizes.k >= 1 &&
         sizes.batch <= args.max_elements / (int64_t{sizes.m} * sizes.n);
}

// Computes out = a b; each element is one running sum over k ascending, whatever the other sizes.
void BatchedMatMul(Stream& stream, const MatMulArgs& args);

struct CholeskySizes {
  int32_t batch, n;  // matrices are square by construction
};

struct CholeskyArgs {
  const float* a;              // [batch, n, n], symmetric; the lower triangle is read
  const CholeskySizes* sizes;  // on the device
  int32_t max_batch;
  // [batch, n, n]: L with a = L L^T, zeros above the diagonal. Must not overlap a. A matrix that is
  // not positive definite gives NaN from the column on in which that shows.
  float* out;
};

constexpr bool Accepts(const CholeskyArgs& args, const CholeskySizes& sizes) {
  return sizes.batch >= 1 && sizes.n >= 1 && sizes.batch <= args.max_batch;
}

// Uses one block per matrix, column by column; meant for n up to some hundreds.
void Cholesky(Stream& stream, const CholeskyArgs& args);

}  // namespace sluice::kernels::cuda
