// The activation of an MLP, gated or not: out = f(in) * up, in float. kernels/activation_kind.h has
// the formulas.
#pragma once

#include <cstdint>

#include "kernels/activation_kind.h"
#include "kernels/cuda/bfloat16.h"
#include "kernels/cuda/rows.h"
#include "kernels/simt/stream.h"

namespace sluice::kernels::cuda {

template <typename T>  // float, BFloat16
struct ActivationArgs {
  Activation activation;
  const T* in;            // [rows, dim]
  const T* up = nullptr;  // [rows, dim]; nullptr means ones
  int32_t dim;
  int64_t stride = 0;  // from row to row of in and up; 0 if they are contiguous
  LiveRows rows;
  T* out;  // [rows, dim]; may be in or up if these are contiguous
};

template <typename T>
void Activate(Stream& stream, const ActivationArgs<T>& args);

}  // namespace sluice::kernels::cuda
