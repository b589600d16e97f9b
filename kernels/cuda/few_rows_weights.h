// The layouts of weights that kernels/cuda/few_rows.h multiplies. In each of them, a slice has
// kSliceDepth<T> of k, and the weights of a block of columns (kernels/cuda/packed.h) are contiguous
// in a slice. Device code only.
#pragma once

#include "kernels/cuda/bring.h"
#include "kernels/cuda/packed.h"
#include "kernels/cuda/weight_layout.h"
#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {

template <typename T>
struct PanelWeights {
  using Value = T;
  static constexpr int32_t kSlice = kSliceElements<T>;
  static constexpr int32_t kPanelBlocks = kPanelColumns / kBlockColumns;
  static SLUICE_HOST_DEVICE int32_t PanelsOf(int32_t n) { return Panels(n); }

  // Loads fragment `a` of MultiplyAdd for step `step` of a block of columns.
  static __device__ void Load(const T* block, int32_t step, uint32_t (&a)[4]) {
    const auto words = LoadWhole<Words>(block + (step * kWarp + Lane()) * kCopyElements<T>);
    SLUICE_UNROLL
    for (int32_t i = 0; i < 4; ++i) a[i] = words.at[i];
  }
  // Rearranges a lane's sums of rows 2t and 2t + 1, so that they are of two neighbouring columns of
  // the block.
  template <typename Sum>
  static __device__ void Settle(Sum (&)[4]) {}
  // The first of these columns.
  static __device__ int32_t Column() { return Lane() / 4 * 2; }

 private:
  struct alignas(kCopyBytes) Words {
    uint32_t at[4];
  };
};

struct GroupWeights {
  using Value = BFloat16;
  static constexpr int32_t kSlice = kGroupSliceElements;
  static constexpr int32_t kPanelBlocks = kGroupSliceColumns / kBlockColumns;
  static SLUICE_HOST_DEVICE int32_t PanelsOf(int32_t n) { return GroupPanels(n); }
  static_assert(kGroupSliceDepth == kSliceDepth<BFloat16>);
  static_assert(PlaceInGroupSlice(0, kBlockColumns) == kBlockElements<BFloat16>);

  static __device__ void Load(const BFloat16* block, int32_t step, uint32_t (&a)[4]) {
    // Lane l passes the address of row l % 8 of matrix l / 8.
    const int32_t matrix = Lane() / kGroupMatrix;
    constexpr int32_t kSteps = kGroupSliceDepth / 16;
    LoadMatrices<true>(block + step / kSteps * kBlockElements<BFloat16> +
                           PlaceInGroupSlice(step % kSteps * 16, 0) +
                           PlaceInGroupSlice(matrix / 2 * kGroupMatrix + Lane() % kGroupMatrix,
                                             matrix % 2 * kGroupMatrix),
                       a);
  }
  // A lane has columns g and g + 8. Pairs of lanes exchange a column.
  static __device__ void Settle(float (&sums)[4]) {
    SLUICE_UNROLL
    for (int32_t i = 0; i < 2; ++i) {
      const float other = ShuffleXor(odd() ? sums[i] : sums[i + 2], 4);
      if (odd()) sums[i] = other;
      if (!odd()) sums[i + 2] = other;
    }
  }
  static __device__ int32_t Column() { return Lane() / 4 + (odd() ? kGroupMatrix - 1 : 0); }

 private:
  static __device__ bool odd() { return Lane() / 4 % 2 == 1; }
};

}  // namespace sluice::kernels::cuda
