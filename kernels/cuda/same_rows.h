// A comparison of rows bit by bit, for the trials of kernels and algorithms
// (engine/cuda/row_check.h).
#pragma once

#include <cstdint>

#include "kernels/cuda/bfloat16.h"
#include "kernels/simt/stream.h"

namespace sluice::kernels::cuda {

// Adds 1 to differing[r] if row r of `values` has other bits than row places[r] of `expected`. All
// NaNs are equal.
template <typename T>  // float, BFloat16
struct SameRowsArgs {
  const T* values;        // [rows, width]
  const T* expected;      // [any, width]
  const int32_t* places;  // [rows]
  int32_t rows;
  int32_t width;
  int32_t* differing;  // [rows]
};

template <typename T>
void SameRows(Stream& stream, const SameRowsArgs<T>& args);

}  // namespace sluice::kernels::cuda
