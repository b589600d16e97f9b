// The GEMM by AMX, to be compiled for AVX2 and on emulated tiles; see kernels/CMakeLists.txt.
#include "tests/kernels/cpu/amx_emulator.h"

#include "kernels/cpu/simd/amx.cc"
