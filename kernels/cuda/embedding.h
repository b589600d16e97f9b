// Lookup of table rows (token embeddings, learned positions, gathering of rows) and input of float
// rows.
#pragma once

#include <cstdint>

#include "kernels/cuda/bfloat16.h"
#include "kernels/cuda/matrix_tables.h"
#include "kernels/cuda/row_tiles.h"
#include "kernels/cuda/rows.h"
#include "kernels/cuda/sample.h"
#include "kernels/simt/stream.h"

namespace sluice::kernels::cuda {

// Computes out[r, :] (+)= scale * table[ids[r], :], in float.
template <typename T>  // float, BFloat16
struct EmbedArgs {
  const T* table;  // [entries, dim]
  // [rows], each below `entries`. The id -2 - i means the token of drawn[i]. A row is left
  // unchanged if its id is -1 or no token was drawn for it. nullptr means row 0 of the table for
  // every row.
  const int32_t* ids;
  const SampleOutcome* drawn = nullptr;  // required if an id is below -1
  int32_t dim;
  bool accumulate = false;
  float scale = 1;
  LiveRows rows;
  T* out;  // [rows, dim]
};

template <typename T>
void Embed(Stream& stream, const EmbedArgs<T>& args);

// Computes out[r, c] = table[ids[r], c] for the columns of the table of the row's tile, or 0 if
// Embed would leave the row unchanged. The tables are matrices [entries, n], which are not packed.
template <typename T>  // float, BFloat16
struct PlacedEmbedArgs {
  const int32_t* ids;  // as in EmbedArgs
  const SampleOutcome* drawn;
  RowTiles tiles;
  MatrixTables tables;
  int32_t stride;  // from row to row of `out`, at least the n of each table
  T* out;
};

template <typename T>
void EmbedPlaced(Stream& stream, const PlacedEmbedArgs<T>& args);

// Computes out = in, rounded to T.
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
