// The layout of packed weights for the products (kernels/cuda/product_loop.h): slices of
// kPanelColumns columns by kSliceDepth<T> of k, each contiguous in memory, filled up with zeros at
// the ends of k and n. The slices of a panel (the same columns) are contiguous by ascending k. The
// panels of a matrix are contiguous, and so are the matrices. A block copies a slice unchanged to
// shared memory. There each lane finds its operands in 16 contiguous bytes.
#pragma once

#include <cstdint>

#include "kernels/cuda/bfloat16.h"

namespace sluice::kernels::cuda {

inline constexpr int32_t kPanelColumns = 64;
template <typename T>
inline constexpr int32_t kSliceDepth = 128 / sizeof(T);
template <typename T>
inline constexpr int32_t kSliceElements = kPanelColumns* kSliceDepth<T>;

// The columns of a block within a panel. In bfloat16 and int8, the weights of a block's columns are
// contiguous in a slice.
inline constexpr int32_t kBlockColumns = 16;
template <typename T>
inline constexpr int32_t kBlockElements = kBlockColumns* kSliceDepth<T>;

// Returns the index of the weight at `depth` and `column` within its slice. Float slices are rows
// of columns. In bfloat16, the operands of a lane are adjacent. They are grouped by block of
// columns, then by step of 16 depths. With g = Lane() / 4 and t = Lane() % 4, a lane has columns 2
// g and 2 g + 1, and depths 2 t, 2 t + 1, 2 t + 8 and 2 t + 9 of the step. This is fragment `a` of
// MultiplyAdd, whose rows are columns here, the even ones first.
SLUICE_HOST_DEVICE constexpr int32_t PlaceInSlice(BFloat16, int32_t depth, int32_t column) {
  const int32_t lane = column % kBlockColumns / 2 * 4 + depth % 8 / 2;
  const int32_t word = depth / 8 % 2 * 2 + column % 2;
  return column / kBlockColumns * kBlockElements<BFloat16> + (depth / 16 * 32 + lane) * 8 +
         word * 2 + depth % 2;
}
SLUICE_HOST_DEVICE constexpr int32_t PlaceInSlice(float, int32_t depth, int32_t column) {
  return depth * kPanelColumns + column;
}
// In int8, a pair of depths is stored at the place of one depth in bfloat16.
SLUICE_HOST_DEVICE constexpr int32_t PlaceInSlice(int8_t, int32_t depth, int32_t column) {
  return PlaceInSlice(BFloat16(), depth / 2, column) * 2 + depth % 2;
}

SLUICE_HOST_DEVICE constexpr int32_t Panels(int32_t n) {
  return (n + kPanelColumns - 1) / kPanelColumns;
}
template <typename T>
SLUICE_HOST_DEVICE constexpr int32_t Slices(int32_t k) {
  return (k + kSliceDepth<T> - 1) / kSliceDepth<T>;
}

// Returns the elements of packed matrices [matrices, k, n].
template <typename T>
constexpr int64_t PackedElements(int64_t matrices, int32_t k, int32_t n) {
  return matrices * Panels(n) * Slices<T>(k) * kSliceElements<T>;
}

}  // namespace sluice::kernels::cuda
