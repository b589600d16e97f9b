// Sums or maxima of rows, in double. They pool the states of a sequence.
//
//   out[s, j] = x[r(0), j] + x[r(1), j] + ... + x[r(n - 1), j], or
//   out[s, j] = max(x[r(0), j], ..., x[r(n - 1), j]), and NaN if one of these is not finite,
//
// where r(i) = ids[begin + i] for range s = (begin, n). One thread computes every sum as one chain
// of additions in double in this order. So the sum has the bits of the same chain on a CPU
// (engine/cpu/head_op.cc), in any batch, and if the chain is continued over several steps.
#pragma once

#include <cstdint>

#include "kernels/cuda/bfloat16.h"
#include "kernels/cuda/rows.h"
#include "kernels/simt/stream.h"

namespace sluice::kernels::cuda {

struct RowRange {
  int32_t begin;
  int32_t count;  // > 0: the number of rows to add up; < 0: minus the number of rows for the maxima
};

template <typename T>  // float, BFloat16
struct SumRowsArgs {
  const T* x;  // [.., dim]
  int32_t dim;
  const int32_t* ids;      // of rows of x
  const RowRange* ranges;  // [rows], into `ids`
  LiveRows rows;           // of `out`
  double* out;             // [rows, dim]
};

template <typename T>
void SumRows(Stream& stream, const SumRowsArgs<T>& args);

}  // namespace sluice::kernels::cuda
