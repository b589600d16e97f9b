// Grouped GEMM over prepacked weights: the dense and the position-wise projection.
//
//   out[r, :] = x[r, :] W[g(r)] + bias[g(r)] (+ out[r, :] if accumulate)
//
// where g(r) is the position of the row's group. A dense layer has one matrix and one group. The
// result equals einsum("bld,lde->ble") with rows sorted by position. Everything is f32; weights
// kept as bf16 are widened as they are loaded into registers, which is exact. Profiles that
// multiply in bf16 instead round the rows of x that such weights are multiplied with.
//
// Batch invariance: each output element is one running sum over k ascending, or in bf16 over pairs
// or tiles of k ascending, whatever the number of rows, the group sizes and the number of threads.
// Hence a row's result is bitwise the same for every M.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/functional/function_ref.h"
#include "kernels/cpu/context.h"
#include "kernels/dtype.h"
#include "kernels/row_group.h"

namespace sluice::kernels {

// The source of a weight matrix: `matrices` consecutive matrices, each either [k, n] row-major
// ("in, out": position-wise tensors) or [n, k] ("out, in": Linear layers).
struct WeightSource {
  const void* data;  // not aligned; only read during packing
  DType dtype;
  int64_t matrices;
  int64_t k;
  int64_t n;
  bool transposed;  // true: stored [n, k]
};

// Immutable weights in the profile's tile order: bf16 if the source is bf16, otherwise widened to
// f32. Under the f32 profiles both give bitwise the same results. Move-only.
class PackedWeights {
 public:
  PackedWeights() = default;
  static PackedWeights Pack(const Context& context, const WeightSource& source);

  int64_t matrices() const { return matrices_; }
  int64_t k() const { return k_; }
  int64_t n() const { return n_; }
  int64_t bytes() const { return bytes_; }
  DType dtype() const { return dtype_; }  // as packed: kF32 or kBF16
  // Returns matrix `i` from column `col` on, which must be the first column of a panel. The layout
  // is private to the kernels of `profile`.
  const void* panels(int64_t i, int64_t col) const {
    return data_.get() + (i * stride_ + col * panel_rows_) * DTypeBytes(dtype_);
  }

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte, Free> data_;
  DType dtype_ = DType::kF32;
  int64_t matrices_ = 0, k_ = 0, n_ = 0, bytes_ = 0;
  int64_t stride_ = 0;      // elements of a matrix
  int64_t panel_rows_ = 0;  // k, plus rows of zeros where the panels need them
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

// Computes the product for the rows of the groups; other rows are neither read nor written.
// Requires that each group's position is < matrices().
void GroupedGemm(const Context& context, const PackedWeights& weights,
                 std::span<const RowGroup> groups, const GemmArgs& args);

// Computes the product of one matrix for rows [0, rows).
void Gemm(const Context& context, const PackedWeights& weights, int64_t rows, const GemmArgs& args);

// A block of rows and columns of a product, in the cache of the thread that computed it.
struct GemmTile {
  int64_t row, rows;
  int64_t col, cols;  // col is a multiple of kGemmTileStep
  float* out;         // [rows, cols], row stride kGemmTileStride; the callback may change it
  int worker;
};
inline constexpr int64_t kGemmTileStep = 512;
inline constexpr int64_t kGemmTileColumns = 1024;
// The stride makes rows fall into different cache sets.
inline constexpr int64_t kGemmTileStride = kGemmTileColumns + 16;
inline constexpr int64_t kGemmTileRows = 128;

struct TiledGemmArgs {
  const float* x;  // [rows, k], row stride ldx
  int64_t ldx;
  const float* bias;  // [n] or nullptr
  float* tiles;       // [threads, kGemmTileRows, kGemmTileStride], one tile for each thread
};

// Computes the same product as Gemm, bit for bit, but passes it to `use` in tiles instead of
// writing it. The tiles cover the product and come in no order, from several threads at once.
void GemmByTiles(const Context& context, const PackedWeights& weights, int64_t rows,
                 const TiledGemmArgs& args, absl::FunctionRef<void(const GemmTile&)> use);

}  // namespace sluice::kernels
