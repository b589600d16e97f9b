#define SLUICE_SIMD_LANES 4
#define SLUICE_SIMD_SUM_LANES 8
#define SLUICE_SIMD_FMA
#define SLUICE_SIMD_NAMESPACE simd_int8_pages_arm64
#define SLUICE_SIMD_TABLE kInt8PagesArm64
#define SLUICE_SIMD_PAGES Int8Pages
#include "kernels/cpu/simd/pages.inc"
