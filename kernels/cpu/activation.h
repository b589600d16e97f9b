// The activation of an MLP, gated or not, and the soft cap of logits.
#pragma once

#include <cstdint>

#include "kernels/activation_kind.h"
#include "kernels/cpu/context.h"
#include "kernels/cpu/quantized_rows.h"

namespace sluice::kernels {

// Computes out = f(in) * up.
//   in, up, out: [rows, dim] dense; up may be nullptr (ones); out may be in or up
// The error against the exact function is at most 3e-7 of max(|in * up|, 1). If `quantized` is
// present, the rows of out are also quantised while they are in the cache.
void Activate(const Context& context, Activation activation, const float* in, const float* up,
              int64_t rows, int64_t dim, float* out, const QuantizedRows& quantized = {});

// Replaces x by cap tanh(x / cap), on the calling thread. Requires cap > 0.
void SoftCap(Profile profile, float cap, int64_t n, float* x);

}  // namespace sluice::kernels
