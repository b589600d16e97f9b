#define SLUICE_SIMD_LANES 8
#define SLUICE_SIMD_NAMESPACE simd_int8_dots_avx2
#define SLUICE_SIMD_TABLE kInt8DotsAvx2
#include "kernels/cpu/simd/int8_dots.inc"
