// The AVX-512 kernels over pages of bf16, compiled for AVX2; see kernels/cpu/CMakeLists.txt.
#include "kernels/cpu/simd/bf16_pages_avx512.cc"
