// The AVX-512 table, to be compiled for AVX2; see kernels/CMakeLists.txt.
#include "kernels/cpu/simd/avx512.cc"
