// Grouped GEMM: the position-wise projection, and the dense one as the case of one matrix.
//
//   out[r, :] = x[r, :] W[m(r)] + bias[m(r)]  (+ out[r, :] if accumulate)
//
// and then, with an activation, out = f(out), or f(gate) * out. m(r) is the position of the row's
// tile. Equal to einsum("bld,lde->ble") with rows sorted by position.
//
// Each output element is one running sum in float over k ascending, in steps that are the same
// whatever the number of rows: bfloat16 by mma.m16n8k16, float by fused multiply-adds. So a row's
// bits do not depend on its company. Weights stream through shared memory by asynchronous copies
// and are read once per tile of kTileRows rows.
//
// An activation is applied to the output as it would have been written: rounded to Out, then again
// behind f. So the bits are those of Project and then Activate (kernels/cuda/activation.h).
#pragma once

#include <cstdint>

#include "kernels/activation_kind.h"
#include "kernels/cuda/bfloat16.h"
#include "kernels/cuda/row_tiles.h"
#include "kernels/simt/stream.h"

namespace sluice::kernels::cuda {

// T: float, BFloat16. Out: T, or float (logits).
template <typename T, typename Out = T>
struct ProjectionArgs {
  const T* x;       // [rows, k]
  const T* weight;  // [matrices, k, n]
  const T* bias;    // nullptr, or [n] (bias_stride 0), or [matrices, n] (bias_stride n)
  int64_t bias_stride;
  int32_t k;  // >= 1, as n. Fast where rows of x and weight are multiples of 16 bytes and
  int32_t n;  // x and weight are so aligned; right everywhere
  RowTiles tiles;
  bool accumulate;
  Out* out;  // [rows, n]; must not overlap x
  bool activate = false;
  Activation activation = {};
  const Out* gate = nullptr;  // [rows, n], what f is taken of; nullptr: of the output itself
};

template <typename T, typename Out>
void Project(Stream& stream, const ProjectionArgs<T, Out>& args);

}  // namespace sluice::kernels::cuda
