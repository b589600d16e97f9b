// RMSNorm (arXiv 1910.07467) and LayerNorm (arXiv 1607.06450) of rows, with the residual's addition
// before:
//   s = x + residual, rounded to T
//   RmsNorm:    out = s / sqrt(mean(s^2) + eps) * weight * scale
//   LayerNorm:  out = ((s - mean(s)) / sqrt(variance(s) + eps) * weight + bias) * scale
// Where a row is several `groups` of dim values, such as heads, each is normalised by itself.
// Computed in float, in an order that depends on `dim` alone.
#pragma once

#include <cstdint>

#include "kernels/cuda/bfloat16.h"
#include "kernels/cuda/rows.h"
#include "kernels/simt/stream.h"

namespace sluice::kernels::cuda {

template <typename T>  // float, BFloat16
struct NormArgs {
  const T* x;                   // [rows, groups, dim], as the next and out
  const T* residual = nullptr;  // [rows, dim]; nullptr: s = x
  T* sum = nullptr;             // [rows, dim], gets s; with a residual only. May be x or residual
  const T* weight = nullptr;    // [dim]; nullptr: ones
  const T* bias = nullptr;      // [dim]; nullptr: zeros. LayerNorm only
  float eps;
  float scale = 1;
  int32_t dim;
  int32_t groups = 1;
  LiveRows rows;
  T* out;  // [rows, dim]; may be x when there is no residual
};

template <typename T>
void RmsNorm(Stream& stream, const NormArgs<T>& args);
template <typename T>
void LayerNorm(Stream& stream, const NormArgs<T>& args);

}  // namespace sluice::kernels::cuda
