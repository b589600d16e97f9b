// Weighted sums of rows: residual mixing, skip connections, per-feature gains, copies.
#pragma once

#include <cstdint>

#include "kernels/cpu/context.h"

namespace sluice::kernels {

// Computes out[r, d] = a[r, d] * a_weight[d] + b[r, d] * b_weight[d].
struct MixArgs {
  const float* a;         // [rows, dim]
  const float* a_weight;  // [dim]; nullptr means ones
  const float* b;         // [rows, dim]; nullptr means no second term
  const float* b_weight;  // [dim]; nullptr means ones
  int64_t rows;
  int64_t dim;
  float* out;  // [rows, dim]; may be a or b
};

void Mix(const Context& context, const MixArgs& args);

}  // namespace sluice::kernels
