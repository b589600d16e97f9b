// The AVX-512 table, compiled for AVX2; see kernels/cpu/CMakeLists.txt.
#include "kernels/cpu/simd/avx512.cc"
