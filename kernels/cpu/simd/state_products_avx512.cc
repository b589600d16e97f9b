#define SLUICE_SIMD_LANES 16
#define SLUICE_SIMD_NAMESPACE simd_state_products_avx512
#define SLUICE_SIMD_STATE_PRODUCTS StateProductsAvx512
#include "kernels/cpu/simd/state_products.inc"
