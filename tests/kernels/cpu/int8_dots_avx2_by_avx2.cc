// Products in int8 by AVX-VNNI, compiled for AVX2; see kernels/cpu/CMakeLists.txt.
#include "kernels/cpu/simd/int8_dots_avx2.cc"
