// Sums of rows in double, or their largest values: the states of a sequence are pooled by them.
//
//   out[s, j] = x[r(0), j] + x[r(1), j] + ... + x[r(n - 1), j], or
//   out[s, j] = max(x[r(0), j], ..., x[r(n - 1), j]), and NaN where one of these is not finite,
//
// where r(i) = ids[begin + i] for range s = (begin, n). Every sum is one chain of additions in
// double in this order, by one thread. So it has the bits of the same chain on a CPU
// (engine/cpu/head_op.cc), in any batch, and of a chain that is continued over several steps.
#pragma once

#include <cstdint>

#include "kernels/cuda/bfloat16.h"
#include "kernels/cuda/rows.h"
#include "kernels/simt/stream.h"

namespace sluice::kernels::cuda {

struct RowRange {
  int32_t begin;
  int32_t count;  // of the rows to add up; below 0, of those whose largest values are wanted
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
