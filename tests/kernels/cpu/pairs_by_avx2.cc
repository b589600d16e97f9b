// The GEMM over bf16 pairs by VDPBF16PS, compiled for AVX2; see kernels/cpu/CMakeLists.txt.
#include "kernels/cpu/simd/avx512_bf16.cc"
