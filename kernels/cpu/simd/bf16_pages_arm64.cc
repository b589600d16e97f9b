#define SLUICE_SIMD_LANES 4
#define SLUICE_SIMD_SUM_LANES 8
#define SLUICE_SIMD_FMA
#define SLUICE_SIMD_NAMESPACE simd_bf16_pages_arm64
#define SLUICE_SIMD_TABLE kBF16PagesArm64
#define SLUICE_SIMD_PAGES BF16Pages
#include "kernels/cpu/simd/pages.inc"
