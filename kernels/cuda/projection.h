// Grouped GEMM: the position-wise projection, and the dense projection as the case of one matrix.
//
//   out[r, :] = x[r, :] W[m(r)] + bias[m(r)]  (+ out[r, :] if accumulate)
//
// and then, with an activation, out = f(out), or f(gate) * out. m(r) is the position of the row's
// tile. The result equals einsum("bld,lde->ble") with rows sorted by position.
//
// x and W may be in int8, with a scale for each row of x and each column of W
// (kernels/cuda/int8.h):
//   out[r, c] = f32(sum_k x[r, k] W[k, c]) row_scales[r] scales[m(r), c]  (+ bias)  (+ out)
// The sum is exact, so these are the bits of the CPU's kernels if T and Out are float.
//
// Each sum is one running sum over k ascending: in float for bfloat16, 16 products at a time
// (mma.m16n8k16), and for float, product by product (fused multiply-adds); in int32 for int8
// (mma.m16n8k32). It is rounded once. So a row's bits do not depend on the other rows or on the
// division of work among blocks. Weights are packed (kernels/cuda/pack.h) and are read once per
// tile of rows.
//
// An activation is applied to the rounded output: the output is rounded to Out before f, and again
// after f. So the bits are the same as with Project followed by Activate
// (kernels/cuda/activation.h).
#pragma once

#include <cstdint>

#include "kernels/activation_kind.h"
#include "kernels/cuda/bfloat16.h"
#include "kernels/cuda/matrix_tables.h"
#include "kernels/cuda/row_tiles.h"
#include "kernels/simt/stream.h"

namespace sluice::kernels::cuda {

// T is float or BFloat16; Out is T, or float (logits); Operand is T, or int8_t.
template <typename T, typename Out = T, typename Operand = T>
struct ProjectionArgs {
  const Operand* x;       // [rows, k]
  const Operand* weight;  // packed [matrices, k, n], 16-byte aligned
  const T* bias;          // nullptr, or [n] (bias_stride 0), or [matrices, n] (bias_stride n)
  int64_t bias_stride;
  // k and n are >= 1. The kernel is fast if the rows of x are multiples of 16 bytes, n is even, and
  // all arrays are 16-byte aligned; it is correct in any case.
  int32_t k;
  int32_t n;
  RowTiles tiles;
  bool accumulate;
  Out* out;  // [rows, n]; must not overlap x
  bool activate = false;
  Activation activation = {};
  const Out* gate = nullptr;          // [rows, n], the input of f; nullptr means the output itself
  const float* row_scales = nullptr;  // [rows]; for int8 operands
  const float* scales = nullptr;      // [matrices, n]; for int8 operands
};

template <typename T, typename Out = T, typename Operand = T>
void Project(Stream& stream, const ProjectionArgs<T, Out, Operand>& args);

// Computes the same as Project with matrices in tables. `args.weight` is not read. The k and n of
// each matrix are at most args.k and args.n, which are the elements from row to row of x and out,
// and its k is a multiple of 16 bytes or args.k. Rows without a matrix are left unchanged. Elements
// of other rows from the n of their matrix on are undefined.
template <typename T>  // float, BFloat16
void ProjectPlaced(Stream& stream, const ProjectionArgs<T>& args, const MatrixTables& matrices);

// Computes the same as Project with a weight in slices for warpgroups
// (kernels/cuda/weight_layout.h), if the rows are so few that this is faster than tuned kernels.
// Otherwise, or if the alignment is not the one for which Project is fast, returns false and
// launches nothing.
bool ProjectFewRowsOfGroups(Stream& stream, const ProjectionArgs<BFloat16>& args);

}  // namespace sluice::kernels::cuda
