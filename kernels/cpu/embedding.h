// Lookup of table rows: token embeddings, learned positions, token types.
#pragma once

#include <cstdint>

#include "kernels/cpu/context.h"
#include "kernels/dtype.h"

namespace sluice::kernels {

// Computes out[r, :] (+)= scale * table[ids[r], :].
struct EmbedArgs {
  const void* table;  // [entries, dim] in `dtype`, unaligned; widened exactly
  DType dtype;
  // [rows], each below `entries` (the server checks this, the kernel does not). Rows with a
  // negative id are left unchanged. nullptr means row 0 of the table for every row.
  const int32_t* ids;
  int64_t rows;
  int64_t dim;
  bool accumulate;
  float scale;
  float* out;  // [rows, dim]
};

void Embed(const Context& context, const EmbedArgs& args);

}  // namespace sluice::kernels
