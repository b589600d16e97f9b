// A warp's products of small matrices in shared memory. Device code only.
//
// Results are distributed over the warp like those of MultiplyAdd: with g = Lane() / 4 and t =
// Lane() % 4, a block of 16 rows by 8 columns is d[2 i + j] = row g + 8 i, column 2 t + j, i and j
// in {0, 1}.
#pragma once

#include <cmath>

#include "kernels/cuda/bfloat16.h"
#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {

__device__ inline uint32_t Pair(BFloat16 low, BFloat16 high) {
  return low.bits | static_cast<uint32_t>(high.bits) << 16;
}

// Returns two neighbouring elements, the first at an even index.
__device__ inline uint32_t PairAt(const BFloat16* place) {
  return *reinterpret_cast<const uint32_t*>(place);
}

// Loads the fragment of a [16, 16] whose rows are `stride` apart.
__device__ inline void LoadA(const BFloat16* a, int32_t stride, uint32_t (&fragment)[4]) {
  for (int32_t i = 0; i < 4; ++i) {
    fragment[i] = PairAt(a + (Lane() / 4 + i % 2 * 8) * stride + Lane() % 4 * 2 + i / 2 * 8);
  }
}

// Loads the fragment of b [16 (depth), 8] whose rows (depths) are `stride` apart.
__device__ inline void LoadB(const BFloat16* b, int32_t stride, uint32_t (&fragment)[2]) {
  for (int32_t i = 0; i < 2; ++i) {
    const BFloat16* from = b + (Lane() % 4 * 2 + i * 8) * stride + Lane() / 4;
    fragment[i] = Pair(from[0], from[stride]);
  }
}

// Loads the same fragment of b stored as [8, 16 (depth)].
__device__ inline void LoadBTransposed(const BFloat16* b, int32_t stride, uint32_t (&fragment)[2]) {
  for (int32_t i = 0; i < 2; ++i) {
    fragment[i] = PairAt(b + Lane() / 4 * stride + Lane() % 4 * 2 + i * 8);
  }
}

// Computes d += a b for a [16, kDepth] and b [kDepth, 8] (kTransposed: stored [8, kDepth]), with
// rows `a_stride` and `b_stride` apart. Each element is one running sum over the depth, ascending.
template <int32_t kDepth, bool kTransposed>
__device__ inline void MultiplyBlock(const BFloat16* a, int32_t a_stride, const BFloat16* b,
                                     int32_t b_stride, float (&d)[4]) {
  SLUICE_UNROLL
  for (int32_t k = 0; k < kDepth; k += 16) {
    uint32_t a_fragment[4], b_fragment[2];
    LoadA(a + k, a_stride, a_fragment);
    if constexpr (kTransposed) {
      LoadBTransposed(b + k, b_stride, b_fragment);
    } else {
      LoadB(b + k * b_stride, b_stride, b_fragment);
    }
    MultiplyAdd(d, a_fragment, b_fragment);
  }
}

template <int32_t kDepth, bool kTransposed>
__device__ inline void MultiplyBlock(const float* a, int32_t a_stride, const float* b,
                                     int32_t b_stride, float (&d)[4]) {
  const int32_t row = Lane() / 4, column = Lane() % 4 * 2;
  for (int32_t k = 0; k < kDepth; ++k) {
    SLUICE_UNROLL
    for (int32_t i = 0; i < 4; ++i) {
      const int32_t c = column + i % 2;
      const float weight = kTransposed ? b[c * b_stride + k] : b[k * b_stride + c];
      d[i] = fmaf(a[(row + i / 2 * 8) * a_stride + k], weight, d[i]);
    }
  }
}

}  // namespace sluice::kernels::cuda
