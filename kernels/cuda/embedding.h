// Rows of a table: out[r, :] = table[ids[r], :]. Token embedding, and the gathering of rows.
#pragma once

#include <cstdint>

#include "kernels/cuda/bfloat16.h"
#include "kernels/cuda/rows.h"
#include "kernels/cuda/stream.h"

namespace sluice::kernels::cuda {

template <typename T>  // float, BFloat16
struct EmbedArgs {
  const T* table;      // [entries, dim]
  const int32_t* ids;  // [rows], each in [0, entries)
  int32_t dim;
  LiveRows rows;
  T* out;  // [rows, dim]
};

template <typename T>
void Embed(Stream& stream, const EmbedArgs<T>& args);

}  // namespace sluice::kernels::cuda
