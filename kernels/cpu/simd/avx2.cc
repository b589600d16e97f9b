#define SLUICE_SIMD_LANES 8
#define SLUICE_SIMD_NAMESPACE simd_avx2
#define SLUICE_SIMD_TABLE kAvx2
#include "kernels/cpu/simd/table.inc"
