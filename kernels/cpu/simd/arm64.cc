#define SLUICE_SIMD_LANES 4
#define SLUICE_SIMD_SUM_LANES 8
#define SLUICE_SIMD_FMA
#define SLUICE_SIMD_NAMESPACE simd_arm64
#define SLUICE_SIMD_TABLE kArm64
#include "kernels/cpu/simd/table.inc"
