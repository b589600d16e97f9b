// The arithmetic of quantisation to int8 (kernels/cuda/int8.h). Device code only.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {

// Returns the larger magnitude, or infinity if the value is not finite.
__device__ inline float Larger(float largest, float value) {
  const float magnitude = fabsf(value);
  if (!(magnitude < INFINITY)) return INFINITY;
  return magnitude > largest ? magnitude : largest;
}

// The factor that quantises a row or column, and its scale.
struct Int8Scale {
  __device__ explicit Int8Scale(float largest) {
    constexpr float kLeast = 0x1p-100f, kMost = 127.0f;
    if (largest == INFINITY) {
      scale = NAN;
    } else if (largest >= kLeast) {
      factor = kMost / largest;
      scale = largest / kMost;
    }
  }

  float factor = 0, scale = 0;
};

__device__ inline int8_t ToInt8(float value, float factor) {
  return factor == 0 ? int8_t{0} : static_cast<int8_t>(rintf(value * factor));
}

// Returns the value of a sum of products.
__device__ inline float ScaleSum(float sum, float row_scale, float scale) {
  return sum * row_scale * scale;
}

}  // namespace sluice::kernels::cuda
