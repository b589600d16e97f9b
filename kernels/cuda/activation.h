// Gated activation of the MLP: out = silu(gate) * up, silu(x) = x / (1 + exp(-x)), in float.
#pragma once

#include <cstdint>

#include "kernels/cuda/bfloat16.h"
#include "kernels/cuda/rows.h"
#include "kernels/cuda/stream.h"

namespace sluice::kernels::cuda {

template <typename T>  // float, BFloat16
struct SwiGluArgs {
  const T* gate;  // [rows, dim]
  const T* up;    // [rows, dim]
  int32_t dim;
  LiveRows rows;
  T* out;  // [rows, dim]; may be gate or up
};

template <typename T>
void SwiGlu(Stream& stream, const SwiGluArgs<T>& args);

}  // namespace sluice::kernels::cuda
