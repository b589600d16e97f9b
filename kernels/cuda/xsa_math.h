// The arithmetic that the fused and the standalone form of exclusive self attention share. Device
// code only.
#pragma once

#include <cmath>

#include "kernels/cuda/xsa.h"
#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {

// The products y . v, v . v and y . y of one row and head.
struct XsaProducts {
  float yv, vv, yy;
};

// Returns whether the step needs diagnostics.
__device__ inline bool WantsDiagnostics(const Xsa& xsa) {
  return (xsa.cos_sim != nullptr || xsa.proj_frac != nullptr) &&
         (xsa.wanted == nullptr || *xsa.wanted != 0);
}

// Returns the factor f of z = y - f * v. Without a gate it is exactly 1 if y is v, because both
// products are then the same sum, unless eps bounds the divisor.
__device__ inline float XsaFactor(const Xsa& xsa, const XsaProducts& products, int32_t head) {
  const float gate = xsa.gate != nullptr ? xsa.gate[head] : 1.0f;
  const float least = xsa.form == XsaForm::kNorm ? xsa.eps * xsa.eps : xsa.eps;
  return gate * products.yv / fmaxf(products.vv, least);
}

// Writes the diagnostics at `place` = row * q_heads + head.
__device__ inline void WriteDiagnostics(const Xsa& xsa, const XsaProducts& products,
                                        int64_t place) {
  constexpr float kEps = 1e-6f;
  const float cos_sim = fabsf(products.yv) / fmaxf(sqrtf(products.vv), kEps);
  if (xsa.cos_sim != nullptr) xsa.cos_sim[place] = cos_sim;
  if (xsa.proj_frac != nullptr) {
    xsa.proj_frac[place] = cos_sim / fmaxf(sqrtf(products.yy), kEps);
  }
}

}  // namespace sluice::kernels::cuda
