#define SLUICE_SIMD_LANES 4
#define SLUICE_SIMD_NAMESPACE simd_state_products_portable
#define SLUICE_SIMD_STATE_PRODUCTS StateProductsPortable
#include "kernels/cpu/simd/state_products.inc"
