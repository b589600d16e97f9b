// The GEMM by AMX, compiled for AVX2 with emulated tiles; see kernels/cpu/CMakeLists.txt.
#include "tests/kernels/cpu/amx_emulator.h"

#include "kernels/cpu/simd/amx.cc"
