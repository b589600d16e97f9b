#define SLUICE_SIMD_LANES 4
#define SLUICE_SIMD_NAMESPACE simd_int8_dots_arm64
#define SLUICE_SIMD_TABLE kInt8DotsArm64
#include "kernels/cpu/simd/int8_dots.inc"
