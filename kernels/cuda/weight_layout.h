// The layouts in which kernels read the weights of products.
#pragma once

#include <cstdint>

#include "kernels/cuda/packed.h"

namespace sluice::kernels::cuda {

// Unchanged, [matrices, k, n]; in slices of panels (kernels/cuda/packed.h); or in slices for a
// warpgroup.
enum class WeightLayout { kPlain, kPanels, kWarpgroups };

// A slice for a warpgroup (kernels/simt/warpgroup.h) has kGroupSliceColumns columns by
// kGroupSliceDepth of k. It consists of matrices of 8 depths by 8 columns, each contiguous. The
// matrices of the same columns are contiguous, so a few columns of a slice are contiguous too.
// Slices are in the same order as the slices of panels.
inline constexpr int32_t kGroupSliceColumns = 128, kGroupSliceDepth = 64, kGroupMatrix = 8;
inline constexpr int32_t kGroupSliceElements = kGroupSliceColumns * kGroupSliceDepth;
SLUICE_HOST_DEVICE constexpr int32_t PlaceInGroupSlice(int32_t depth, int32_t column) {
  const int32_t matrix =
      column / kGroupMatrix * (kGroupSliceDepth / kGroupMatrix) + depth / kGroupMatrix;
  return (matrix * kGroupMatrix + depth % kGroupMatrix) * kGroupMatrix + column % kGroupMatrix;
}
SLUICE_HOST_DEVICE constexpr int32_t GroupPanels(int32_t n) {
  return (n + kGroupSliceColumns - 1) / kGroupSliceColumns;
}
SLUICE_HOST_DEVICE constexpr int32_t GroupSlices(int32_t k) {
  return (k + kGroupSliceDepth - 1) / kGroupSliceDepth;
}

// Returns the elements of matrices [matrices, k, n] in a layout.
template <typename T>
constexpr int64_t WeightElements(WeightLayout layout, int64_t matrices, int32_t k, int32_t n) {
  switch (layout) {
    case WeightLayout::kPlain:
      break;
    case WeightLayout::kPanels:
      return PackedElements<T>(matrices, k, n);
    case WeightLayout::kWarpgroups:
      return matrices * GroupPanels(n) * GroupSlices(k) * kGroupSliceElements;
  }
  return matrices * k * n;
}

}  // namespace sluice::kernels::cuda
