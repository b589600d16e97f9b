// Grouped GEMM for compute capability 9.0 (sm_90a), tuned where kernels/cuda/projection.h is
// portable: the same result but for its last bits, of the same operands but for the weight, which
// is packed for warpgroups (kernels/cuda/weight_layout.h); `split` is not used.
//
// A tile's rows are multiplied with kHopperColumns columns by the tensor cores of a warpgroup,
// which read both operands from shared memory. Each output element is one running sum over k
// ascending, 16 products at a time, whatever the number of rows, so a row's bits do not depend on
// the other rows. An activation is applied as Project applies it.
#pragma once

#include "kernels/cuda/projection.h"

namespace sluice::kernels::cuda {

inline constexpr int32_t kHopperColumns = 128;

// Requires that the rows of x and the weight are 16-byte aligned, and HopperSharedBytes within the
// stream's limit.
void ProjectOnHopper(Stream& stream, const ProjectionArgs<BFloat16>& args);

// Returns the shared memory of a block in bytes.
int32_t HopperSharedBytes();

}  // namespace sluice::kernels::cuda
