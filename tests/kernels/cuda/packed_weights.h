// Packed weights (kernels/cuda/packed.h), made on the host.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/weight_layout.h"

namespace sluice::kernels::cuda {

// Packs `weights` [matrices, k, n].
template <typename T>
std::vector<T> Packed(const std::vector<T>& weights, int64_t matrices, int32_t k, int32_t n) {
  std::vector<T> packed(PackedElements<T>(matrices, k, n), T{});
  for (int64_t m = 0; m < matrices; ++m) {
    for (int32_t i = 0; i < k; ++i) {
      for (int32_t j = 0; j < n; ++j) {
        const int64_t slice =
            (m * Panels(n) + j / kPanelColumns) * Slices<T>(k) + i / kSliceDepth<T>;
        packed[slice * kSliceElements<T> +
               PlaceInSlice(T{}, i % kSliceDepth<T>, j % kPanelColumns)] =
            weights[(m * k + i) * n + j];
      }
    }
  }
  return packed;
}

// Packs `weights` [matrices, k, n] for warpgroups.
inline std::vector<BFloat16> PackedForWarpgroups(const std::vector<BFloat16>& weights,
                                                 int64_t matrices, int32_t k, int32_t n) {
  std::vector<BFloat16> packed(WeightElements<BFloat16>(WeightLayout::kWarpgroups, matrices, k, n),
                               BFloat16{});
  for (int64_t i = 0; i < matrices * k * n; ++i) {
    const auto column = static_cast<int32_t>(i % n), depth = static_cast<int32_t>(i / n % k);
    const int64_t slice =
        (i / n / k * GroupPanels(n) + column / kGroupSliceColumns) * GroupSlices(k) +
        depth / kGroupSliceDepth;
    packed[slice * kGroupSliceElements +
           PlaceInGroupSlice(depth % kGroupSliceDepth, column % kGroupSliceColumns)] = weights[i];
  }
  return packed;
}

}  // namespace sluice::kernels::cuda
