#define SLUICE_SIMD_LANES 16
#define SLUICE_SIMD_NAMESPACE simd_int8_pages_avx512
#define SLUICE_SIMD_TABLE kInt8PagesAvx512
#define SLUICE_SIMD_PAGES Int8Pages
#include "kernels/cpu/simd/pages.inc"
