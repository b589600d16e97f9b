#define SLUICE_SIMD_LANES 8
#define SLUICE_SIMD_NAMESPACE simd_max_sim_avx2
#define SLUICE_SIMD_MAX_SIM MaxSimAvx2
#include "kernels/cpu/simd/max_sim.inc"
