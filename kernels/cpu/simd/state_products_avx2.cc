#define SLUICE_SIMD_LANES 8
#define SLUICE_SIMD_NAMESPACE simd_state_products_avx2
#define SLUICE_SIMD_STATE_PRODUCTS StateProductsAvx2
#include "kernels/cpu/simd/state_products.inc"
