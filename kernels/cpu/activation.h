// Gated activation of the MLP: out = silu(gate) * up, silu(x) = x / (1 + exp(-x)).
#pragma once

#include <cstdint>

#include "kernels/cpu/context.h"

namespace sluice::kernels {

// gate, up, out: [rows, dim] dense; out may be gate or up.
void SwiGlu(const Context& context, const float* gate, const float* up, int64_t rows, int64_t dim,
            float* out);

}  // namespace sluice::kernels
