#define SLUICE_SIMD_LANES 8
#define SLUICE_SIMD_NAMESPACE simd_bf16_pages_avx2
#define SLUICE_SIMD_TABLE kBF16PagesAvx2
#define SLUICE_SIMD_PAGES BF16Pages
#include "kernels/cpu/simd/pages.inc"
