#define SLUICE_SIMD_LANES 16
#define SLUICE_SIMD_NAMESPACE simd_avx512
#define SLUICE_SIMD_TABLE kAvx512
#include "kernels/cpu/simd/table.inc"
