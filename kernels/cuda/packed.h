// The layout of packed weights, which the products read (kernels/cuda/product_loop.h): slices of
// kPanelColumns columns by kSliceDepth<T> of k, each contiguous in memory, with zeros where k or n
// ends within a slice. Those of a panel, which are the same columns at ascending k, follow one
// another; so do the panels of a matrix, and the matrices. A block copies a slice as it is to
// shared memory, where each lane then finds what it multiplies in 16 bytes.
#pragma once

#include <cstdint>

#include "kernels/cuda/bfloat16.h"

namespace sluice::kernels::cuda {

inline constexpr int32_t kPanelColumns = 64;
template <typename T>
inline constexpr int32_t kSliceDepth = 128 / sizeof(T);
template <typename T>
inline constexpr int32_t kSliceElements = kPanelColumns* kSliceDepth<T>;

// Returns the place in its slice of the weight at `depth` and `column` of the slice. In float these
// are rows of columns. In bfloat16, what a lane multiplies at a time is side by side, by step of 16
// depths, block of 16 columns and block of 32 depths. With g = Lane() / 4 and t = Lane() % 4, a
// lane has columns 2 g and 2 g + 1 and depths 8 t to 8 t + 3 in the first step, and the next 4 in
// the second: the fragment `a` of MultiplyAdd, whose rows are columns here, the even ones first.
SLUICE_HOST_DEVICE constexpr int32_t PlaceInSlice(BFloat16, int32_t depth, int32_t column) {
  const int32_t block = depth / 32 * (kPanelColumns / 16) + column / 16;
  const int32_t lane = column % 16 / 2 * 4 + depth % 32 / 8;
  const int32_t word = depth / 2 % 2 * 2 + column % 2;
  return ((block * 2 + depth / 4 % 2) * 32 + lane) * 8 + word * 2 + depth % 2;
}
SLUICE_HOST_DEVICE constexpr int32_t PlaceInSlice(float, int32_t depth, int32_t column) {
  return depth * kPanelColumns + column;
}
// In int8 a pair of depths lies where one of bfloat16 does.
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
