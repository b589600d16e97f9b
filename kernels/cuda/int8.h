// Quantisation to int8, by rows and by columns. A value is round(x * (127 / max|x|)), ties to even,
// and the scale of its row or column is max|x| / 127. If max|x| is below 2^-100, all values and the
// scale are 0. If a value is not finite, the scale is NaN. The CPU's kernels compute the same
// numbers, bit for bit (kernels/reference/int8.h).
//
// A product of such rows and columns is exact in int32. kernels/cuda/projection.h multiplies and
// scales them. ScaleSums only scales sums that exist already, with the same bits.
#pragma once

#include <cstdint>

#include "kernels/cuda/packed.h"
#include "kernels/cuda/rows.h"
#include "kernels/simt/stream.h"

namespace sluice::kernels::cuda {

// Returns the stride of quantised rows of k values. Each row is padded with zeros.
SLUICE_HOST_DEVICE constexpr int32_t Int8Stride(int32_t k) {
  return Slices<int8_t>(k) * kSliceDepth<int8_t>;
}

template <typename T>  // float, BFloat16
struct QuantizeRowsArgs {
  const T* x;  // [rows, k]
  int32_t k;
  LiveRows rows;
  int8_t* out;    // [rows, Int8Stride(k)], 16-byte aligned
  float* scales;  // [rows]
};

template <typename T>
void QuantizeRows(Stream& stream, const QuantizeRowsArgs<T>& args);

struct ScaleColumnsArgs {
  const float* in;  // [matrices, k, n]
  int64_t matrices;
  int32_t k;
  int32_t n;
  float* scales;   // [matrices, n]
  float* factors;  // [matrices, n]: 127 / max|x|, or 0; QuantizeColumns multiplies by them
};

void ScaleColumns(Stream& stream, const ScaleColumnsArgs& args);

struct QuantizeColumnsArgs {
  const float* in;  // [matrices, k, n]
  int64_t matrices;
  int32_t k;
  int32_t n;
  const float* factors;  // [matrices, n]; nullptr if the values are in int8 already
  int8_t* out;           // [matrices, n, Int8Stride(k)], 16-byte aligned
};

// Quantises columns, and transposes them.
void QuantizeColumns(Stream& stream, const QuantizeColumnsArgs& args);

template <typename T>  // float, BFloat16
struct ScaleSumsArgs {
  const int32_t* sums;  // [rows.capacity, n], for the rows from `first` on
  int32_t n;
  LiveRows rows;  // the count is the number of rows of `out`
  int32_t first = 0;
  const float* row_scales;  // [*rows.count]
  const float* scales;      // [n]
  const T* bias = nullptr;  // [n]; nullptr means zeros
  bool accumulate = false;
  T* out;  // [*rows.count, n]
};

// Computes out = f32(sums) row_scales scales (+ bias) (+ out) for the rows that have sums.
template <typename T>
void ScaleSums(Stream& stream, const ScaleSumsArgs<T>& args);

}  // namespace sluice::kernels::cuda
