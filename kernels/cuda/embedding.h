// Rows of a table: token embeddings, learned positions, the gathering of rows; and rows of floats.
#pragma once

#include <cstdint>

#include "kernels/cuda/bfloat16.h"
#include "kernels/cuda/rows.h"
#include "kernels/simt/stream.h"

namespace sluice::kernels::cuda {

// out[r, :] (+)= scale * table[ids[r], :], in float
template <typename T>  // float, BFloat16
struct EmbedArgs {
  const T* table;      // [entries, dim]
  const int32_t* ids;  // [rows], each below `entries`; rows of a negative one are left alone;
                       // nullptr: row 0 of the table for every row
  int32_t dim;
  bool accumulate = false;
  float scale = 1;
  LiveRows rows;
  T* out;  // [rows, dim]
};

template <typename T>
void Embed(Stream& stream, const EmbedArgs<T>& args);

// out = in, rounded to T
template <typename T>  // float, BFloat16
struct InputArgs {
  const float* in;  // [rows, dim]
  int32_t dim;
  LiveRows rows;
  T* out;  // [rows, dim]
};

template <typename T>
void TakeInput(Stream& stream, const InputArgs<T>& args);

}  // namespace sluice::kernels::cuda
