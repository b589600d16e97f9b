// Rows of a table: token embeddings, learned positions, token types.
#pragma once

#include <cstdint>

#include "kernels/cpu/context.h"
#include "kernels/dtype.h"

namespace sluice::kernels {

// out[r, :] (+)= scale * table[ids[r], :]
struct EmbedArgs {
  const void* table;  // [entries, dim] in `dtype`, not aligned, widened on the way out (exact)
  DType dtype;
  const int32_t* ids;  // [rows], each below `entries` (checked by the server, not here); rows of a
                       // negative one are left alone; nullptr: row 0 of the table for every row
  int64_t rows;
  int64_t dim;
  bool accumulate;
  float scale;
  float* out;  // [rows, dim]
};

void Embed(const Context& context, const EmbedArgs& args);

}  // namespace sluice::kernels
