#define SLUICE_SIMD_LANES 4
#define SLUICE_SIMD_NAMESPACE simd_int8_portable
#define SLUICE_SIMD_TABLE kInt8Portable
#include "kernels/cpu/simd/int8_pairs.inc"
