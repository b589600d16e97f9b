// The AVX-512 kernels over pages of int8, compiled for AVX2; see kernels/cpu/CMakeLists.txt.
#include "kernels/cpu/simd/int8_pages_avx512.cc"
