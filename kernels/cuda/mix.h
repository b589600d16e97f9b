// Weighted sums of rows: residual mixing, skip connections, gains of heads, copies.
#pragma once

#include <cstdint>

#include "kernels/cuda/bfloat16.h"
#include "kernels/cuda/rows.h"
#include "kernels/simt/stream.h"

namespace sluice::kernels::cuda {

// Computes out[r, d] = a[r, d] * a_weight[d / repeat] + b[r, d] * b_weight[d / repeat], in float.
template <typename T>  // float, BFloat16
struct MixArgs {
  const T* a;                   // [rows, dim]
  const T* a_weight = nullptr;  // [dim / repeat]; nullptr means ones
  const T* b = nullptr;         // [rows, dim]; nullptr means no second term
  const T* b_weight = nullptr;  // [dim / repeat]; nullptr means ones
  int32_t repeat = 1;
  int32_t dim;
  int64_t stride = 0;  // from row to row of a, b and out; 0 if they are contiguous
  LiveRows rows;
  T* out;  // [rows, dim]; may be a or b
};

template <typename T>
void Mix(Stream& stream, const MixArgs<T>& args);

}  // namespace sluice::kernels::cuda
