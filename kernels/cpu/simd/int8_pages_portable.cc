#define SLUICE_SIMD_LANES 4
#define SLUICE_SIMD_NAMESPACE simd_int8_pages_portable
#define SLUICE_SIMD_TABLE kInt8PagesPortable
#define SLUICE_SIMD_PAGES Int8Pages
#include "kernels/cpu/simd/pages.inc"
