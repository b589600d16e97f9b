// RMSNorm (arXiv 1910.07467) and LayerNorm (arXiv 1607.06450) of rows, with an optional residual
// added first:
//   s = x + residual, rounded to T
//   RmsNorm:    out = s / sqrt(mean(s^2) + eps) * (offset + weight) * scale
//   LayerNorm:  out = ((s - mean(s)) / sqrt(variance(s) + eps) * (offset + weight) + bias) * scale
// If a row consists of several `groups` of dim values, such as heads, each group is normalised
// separately. Everything is computed in float, in an order that depends only on `dim`.
#pragma once

#include <cstdint>

#include "kernels/cuda/bfloat16.h"
#include "kernels/cuda/rows.h"
#include "kernels/simt/stream.h"

namespace sluice::kernels::cuda {

inline constexpr int32_t kMaxStridedDim = 256;

template <typename T>  // float, BFloat16
struct NormArgs {
  const T* x;                   // [rows, groups, dim], like residual, sum and out
  const T* residual = nullptr;  // nullptr means s = x
  T* sum = nullptr;             // receives s; only with a residual. May be x or residual
  const T* weight = nullptr;    // [dim]; nullptr means ones
  const T* bias = nullptr;      // [dim]; nullptr means zeros. LayerNorm only
  float weight_offset = 0;      // 0 without a weight
  float eps;
  float scale = 1;
  int32_t dim;
  int32_t groups = 1;
  // From row to row of x and out; 0 if they are contiguous. It must be 0 with a residual, or if dim
  // is more than kMaxStridedDim.
  int64_t stride = 0;
  LiveRows rows;
  T* out;  // may be x if there is no residual
};

template <typename T>
void RmsNorm(Stream& stream, const NormArgs<T>& args);
template <typename T>
void LayerNorm(Stream& stream, const NormArgs<T>& args);

}  // namespace sluice::kernels::cuda
