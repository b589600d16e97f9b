// The AVX-512 kernel of MaxSim, with each vector made of two AVX2 vectors.
#include "kernels/cpu/simd/max_sim_avx512.cc"
