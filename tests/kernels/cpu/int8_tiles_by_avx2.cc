// Products in int8 by AMX, compiled for AVX2 with emulated tiles; see kernels/cpu/CMakeLists.txt.
#include "tests/kernels/cpu/amx_emulator.h"

#include "kernels/cpu/simd/int8_tiles.cc"
