// Grouped GEMM tuned for compute capability 9.0 (sm_90a); kernels/cuda/projection.h is the portable
// version. The result is the same except for the last bits. The operands are the same, except that
// the weight is packed for warpgroups (kernels/cuda/weight_layout.h).
//
// The tensor cores of warpgroups read rows from registers and the weight from shared memory. The
// size of the tiles depends on the possible number of rows: large tiles read operands less often,
// small tiles keep all processors busy. For any tile size, each output element is one running sum
// over k ascending, 16 products at a time. So a row's bits do not depend on the other rows. An
// activation is applied in the same way as in Project.
#pragma once

#include "kernels/cuda/projection.h"

namespace sluice::kernels::cuda {

// Requires that the weight and the rows of x, `out` and `gate` are 16-byte aligned, and that
// HopperSharedBytes is within the stream's limit.
void ProjectOnHopper(Stream& stream, const ProjectionArgs<BFloat16>& args);

// Returns the most shared memory of a block in bytes.
int32_t HopperSharedBytes();

}  // namespace sluice::kernels::cuda
