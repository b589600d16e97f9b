// Grouped GEMM for compute capability 9.0 (sm_90a), tuned where kernels/cuda/projection.h is
// portable: the same result but for its last bits, of the same operands but for the weight, which
// is packed for warpgroups (kernels/cuda/weight_layout.h); `split` is not used.
//
// The tensor cores of warpgroups read rows from registers and the weight from shared memory. How
// large the tiles are depends on how many rows there may be: large ones read operands less often,
// small ones keep all processors busy. Each output element is one running sum over k ascending, 16
// products at a time, in tiles of any size, so a row's bits do not depend on the other rows. An
// activation is applied as Project applies it.
#pragma once

#include "kernels/cuda/projection.h"

namespace sluice::kernels::cuda {

// Requires that the weight and the rows of x, `out` and `gate` are 16-byte aligned, and
// HopperSharedBytes within the stream's limit.
void ProjectOnHopper(Stream& stream, const ProjectionArgs<BFloat16>& args);

// Returns the most shared memory of a block in bytes.
int32_t HopperSharedBytes();

}  // namespace sluice::kernels::cuda
