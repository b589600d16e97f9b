// The AVX-512 kernel of products with states, with each vector made of two AVX2 vectors.
#include "kernels/cpu/simd/state_products_avx512.cc"
