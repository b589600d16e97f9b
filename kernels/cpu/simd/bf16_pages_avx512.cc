#define SLUICE_SIMD_LANES 16
#define SLUICE_SIMD_NAMESPACE simd_bf16_pages_avx512
#define SLUICE_SIMD_TABLE kBF16PagesAvx512
#define SLUICE_SIMD_PAGES BF16Pages
#include "kernels/cpu/simd/pages.inc"
