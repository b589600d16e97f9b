#define SLUICE_SIMD_LANES 8
#define SLUICE_SIMD_NAMESPACE simd_int8_pages_avx2
#define SLUICE_SIMD_TABLE kInt8PagesAvx2
#define SLUICE_SIMD_PAGES Int8Pages
#include "kernels/cpu/simd/pages.inc"
