// Token embedding: out[r, :] = table[ids[r], :].
#pragma once

#include <cstdint>

#include "kernels/cpu/context.h"
#include "kernels/dtype.h"

namespace sluice::kernels {

// table: [vocab, dim] in `dtype`, not aligned, widened on the way out (exact); ids: [rows], each in
// [0, vocab) (checked by the server, not here); out: [rows, dim].
void Embed(const Context& context, const void* table, DType dtype, const int32_t* ids, int64_t rows,
           int64_t dim, float* out);

}  // namespace sluice::kernels
