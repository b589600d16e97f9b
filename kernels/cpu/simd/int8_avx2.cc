#define SLUICE_SIMD_LANES 8
#define SLUICE_SIMD_NAMESPACE simd_int8_avx2
#define SLUICE_SIMD_TABLE kInt8Avx2
#include "kernels/cpu/simd/int8_pairs.inc"
