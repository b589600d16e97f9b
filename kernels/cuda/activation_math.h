// Activation functions, which the activation kernel and a projection's epilogue share. Device code
// only.
#pragma once

#include <cmath>

#include "kernels/activation_kind.h"
#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {

// Returns max(x, 0), but keeps a NaN, which fmaxf would not.
__device__ inline float Relu(float x) { return x < 0.0f ? 0.0f : x; }

__device__ inline float Apply(Activation activation, float x) {
  switch (activation) {
    case Activation::kSilu:
      return x / (1.0f + expf(-x));
    case Activation::kGelu:
      return x * 0.5f * erfcf(x * -0.70710678f);
    case Activation::kGeluTanh:
      // (1 + tanh(u)) / 2 = 1 / (1 + e^(-2u)), u = sqrt(2 / pi) (x + 0.044715 x^3)
      return x / (1.0f + expf(-(x * (1.59576912f + 0.0713548162f * (x * x)))));
    case Activation::kRelu:
      return Relu(x);
    case Activation::kSquaredRelu:
      return Relu(x) * Relu(x);
  }
  return x;
}

}  // namespace sluice::kernels::cuda
