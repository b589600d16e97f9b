// Token embedding: out[r, :] = table[ids[r], :].
#pragma once

#include <cstdint>

#include "kernels/cpu/context.h"

namespace sluice::kernels {

// table: [vocab, dim] f32; ids: [rows], each in [0, vocab) (checked by the server, not here);
// out: [rows, dim].
void Embed(const Context& context, const float* table, const int32_t* ids, int64_t rows,
           int64_t dim, float* out);

}  // namespace sluice::kernels
