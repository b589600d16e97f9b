// Attention for compute capability 9.0 (sm_90a), tuned where kernels/cuda/attention.h is portable:
// the same sums of the same cuts, but for the order within a chunk, which is that of the tensor
// cores.
//
// A block takes a tile of queries, whose scores and values a warpgroup multiplies from shared
// memory. Two chunks of keys and of values are in flight. Windows, soft caps, biases and SiLU
// weights are left to the portable kernel.
#pragma once

#include "kernels/cuda/attention.h"

namespace sluice::kernels::cuda {

inline constexpr int32_t kMaxHopperHeadDim = 128;

// Requires that the rows of q, keys, values and the output are 16-byte aligned, that args.shaped()
// is false, head_dim a multiple of 8 up to kMaxHopperHeadDim, and HopperAttentionSharedBytes
// within the stream's limit.
void AttentionOnHopper(Stream& stream, const AttentionArgs<BFloat16>& args);

// Returns the shared memory of a block, in bytes.
int32_t HopperAttentionSharedBytes(int32_t head_dim);

}  // namespace sluice::kernels::cuda
