#define SLUICE_SIMD_LANES 16
#define SLUICE_SIMD_NAMESPACE simd_int8_dots
#define SLUICE_SIMD_TABLE kInt8Dots
#include "kernels/cpu/simd/int8_dots.inc"
