// The GEMM over bf16 pairs by VDPBF16PS, to be compiled for AVX2; see kernels/CMakeLists.txt.
#include "kernels/cpu/simd/avx512_bf16.cc"
