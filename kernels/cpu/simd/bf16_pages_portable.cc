#define SLUICE_SIMD_LANES 4
#define SLUICE_SIMD_NAMESPACE simd_bf16_pages_portable
#define SLUICE_SIMD_TABLE kBF16PagesPortable
#define SLUICE_SIMD_PAGES BF16Pages
#include "kernels/cpu/simd/pages.inc"
