// Grouped GEMM over prepacked weights: the dense and the position-wise projection.
//
//   out[r, :] = x[r, :] W[g(r)] + bias[g(r)] (+ out[r, :] if accumulate)
//
// where g(r) is the position of the row's group. A dense layer is the case of one matrix and one
// group. Equal to einsum("bld,lde->ble") with rows sorted by position.
//
// Batch invariance: each output element is one running sum over k ascending, whatever the number of
// rows, the group sizes and the threads. Hence rows are bitwise the same for every M.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/cpu/context.h"
#include "kernels/dtype.h"
#include "kernels/row_group.h"

namespace sluice::kernels {

// Where a weight matrix comes from: `matrices` matrices one after another, each either
// [k, n] row-major ("in, out": position-wise tensors) or [n, k] ("out, in": Linear layers).
struct WeightSource {
  const void* data;  // not aligned; only read during packing
  DType dtype;
  int64_t matrices;
  int64_t k;
  int64_t n;
  bool transposed;  // true: stored [n, k]
};

// Immutable weights in the profile's tile order, widened to f32. Move-only.
class PackedWeights {
 public:
  PackedWeights() = default;
  static PackedWeights Pack(const Context& context, const WeightSource& source);

  int64_t matrices() const { return matrices_; }
  int64_t k() const { return k_; }
  int64_t n() const { return n_; }
  int64_t bytes() const { return bytes_; }
  // First element of matrix `i`; layout is private to the kernels of `profile`.
  const float* matrix(int64_t i) const { return data_.get() + i * stride_; }

 private:
  struct Free {
    void operator()(float* p) const;
  };
  std::unique_ptr<float, Free> data_;
  int64_t matrices_ = 0, k_ = 0, n_ = 0, stride_ = 0, bytes_ = 0;
};

struct GemmArgs {
  const float* x;  // [rows, k], row stride ldx
  int64_t ldx;
  const float* bias;  // nullptr, or [n] (bias_stride 0), or [matrices, n] (bias_stride n)
  int64_t bias_stride;
  float* out;  // [rows, n], row stride ldo; must not overlap x
  int64_t ldo;
  bool accumulate;  // add to what `out` holds: out = out + (x W + bias)
};

// Rows outside the groups are neither read nor written. A group's position must be < matrices().
void GroupedGemm(const Context& context, const PackedWeights& weights,
                 std::span<const RowGroup> groups, const GemmArgs& args);

// One matrix for rows [0, rows).
void Gemm(const Context& context, const PackedWeights& weights, int64_t rows, const GemmArgs& args);

}  // namespace sluice::kernels
