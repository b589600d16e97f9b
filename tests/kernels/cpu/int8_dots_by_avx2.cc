// Products in int8 by AVX-512 VNNI, compiled for AVX2; see kernels/cpu/CMakeLists.txt.
#include "kernels/cpu/simd/int8_dots.cc"
