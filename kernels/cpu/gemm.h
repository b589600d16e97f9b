// Grouped GEMM over prepacked weights: dense layers, position-wise layers, layers of experts and
// adapters.
//
//   out[r, :] = x[r, :] W[g(r)] + bias[g(r)] (+ out[r, :] if accumulate)
//
// where g(r) is the matrix of the row's group. A dense layer has one matrix and one group. By
// position, the result equals einsum("bld,lde->ble") with sorted rows. The matrices of adapters may
// differ in size. Everything is f32. Weights
// stored as bf16 are widened exactly when they are loaded into registers. Profiles that multiply in
// bf16 instead round the rows of x that are multiplied with such weights. Weights in int8 or int4
// are multiplied with quantised rows. Their sums are exact and have the same bits under all
// profiles. Channels that int8 weights keep in f32 also have the same bits under all profiles,
// because their products with x are rounded one by one.
//
// Batch invariance: each output element is one running sum over k ascending, or in bf16 over pairs
// or tiles of k ascending, for any number of rows, group sizes and number of threads. Hence a row's
// result is bitwise the same for every M.
#pragma once

#include <cstdint>
#include <span>

#include "absl/functional/function_ref.h"
#include "kernels/cpu/context.h"
#include "kernels/cpu/packed_weights.h"
#include "kernels/cpu/quantized_rows.h"
#include "kernels/row_group.h"

namespace sluice::kernels {

struct GemmArgs {
  const float* x;  // [rows, k], row stride ldx
  int64_t ldx;
  const float* bias;  // nullptr, or [n] (bias_stride 0), or [matrices, n] (bias_stride n)
  int64_t bias_stride;
  float* out;  // [rows, n], row stride ldo; must not overlap x
  int64_t ldo;
  bool accumulate;  // add to `out`: out = out + (x W + bias)
  // The rows in place of x, if the weights are quantised. They need sums if the weights are int4.
  // If the weights have kept channels, x is also read, and the quantised rows must be zero there.
  QuantizedRows quantized = {};
};

// Computes the product for the rows of the groups; other rows are neither read nor written.
// Requires that each group's matrix is < matrices().
void GroupedGemm(const Context& context, const PackedWeights& weights,
                 std::span<const RowGroup> groups, const GemmArgs& args);

// Returns the weights of a group, which are one matrix, or nullptr if the rows of the group are not
// multiplied.
using WeightsOfGroup = absl::FunctionRef<const PackedWeights*(const RowGroup& group)>;

// The same product for matrices of different sizes, in one loop of the threads. Requires weights in
// floats, no bias, and strides of at least the largest k and n.
void GroupedGemm(const Context& context, WeightsOfGroup weights_of,
                 std::span<const RowGroup> groups, const GemmArgs& args);

// Computes the product of one matrix for rows [0, rows).
void Gemm(const Context& context, const PackedWeights& weights, int64_t rows, const GemmArgs& args);

// A block of rows and columns of a product. It is in the cache of the thread that computed it.
struct GemmTile {
  int64_t row, rows;
  int64_t col, cols;  // col is a multiple of kGemmTileStep
  float* out;         // [rows, cols], row stride kGemmTileStride; the callback may change it
  int worker;
};
inline constexpr int64_t kGemmTileStep = 512;
inline constexpr int64_t kGemmTileColumns = 1024;
// This stride puts the rows into different cache sets.
inline constexpr int64_t kGemmTileStride = kGemmTileColumns + 16;
inline constexpr int64_t kGemmTileRows = 128;

struct TiledGemmArgs {
  const float* x;  // [rows, k], row stride ldx
  int64_t ldx;
  const float* bias;  // [n] or nullptr
  float* tiles;       // [threads, kGemmTileRows, kGemmTileStride], one tile for each thread
  QuantizedRows quantized = {};  // as in GemmArgs
};

// Computes the same product as Gemm, bit for bit, but passes it to `use` in tiles instead of
// writing it. The tiles cover the product. Several threads call `use` at the same time, in no fixed
// order.
void GemmByTiles(const Context& context, const PackedWeights& weights, int64_t rows,
                 const TiledGemmArgs& args, absl::FunctionRef<void(const GemmTile&)> use);

}  // namespace sluice::kernels
