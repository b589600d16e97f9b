// Attention tuned for compute capability 9.0 (sm_90a); kernels/cuda/attention.h is the portable
// version. The sums have the same cuts. Only the order within a chunk differs; it is the order of
// the tensor cores.
//
// A block takes a tile of queries. A warpgroup multiplies its scores and values from shared memory.
// Half a chunk of keys or of values is multiplied while the next ones are copied. Only the portable
// kernel handles windows, soft caps, biases and SiLU weights.
#pragma once

#include "kernels/cuda/attention.h"

namespace sluice::kernels::cuda {

inline constexpr int32_t kMaxHopperHeadDim = 128;

// Requires that the rows of q, keys, values and the output are 16-byte aligned, that args.shaped()
// is false, that head_dim is a multiple of 8 up to kMaxHopperHeadDim, and that
// HopperAttentionSharedBytes is within the stream's limit.
void AttentionOnHopper(Stream& stream, const AttentionArgs<BFloat16>& args);

// Returns the shared memory of a block, in bytes.
int32_t HopperAttentionSharedBytes(int32_t head_dim);

}  // namespace sluice::kernels::cuda
