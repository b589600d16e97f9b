#define SLUICE_SIMD_LANES 4
#define SLUICE_SIMD_NAMESPACE simd_portable
#define SLUICE_SIMD_TABLE kPortable
#include "kernels/cpu/simd/table.inc"
