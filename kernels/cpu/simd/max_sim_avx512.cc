#define SLUICE_SIMD_LANES 16
#define SLUICE_SIMD_NAMESPACE simd_max_sim_avx512
#define SLUICE_SIMD_MAX_SIM MaxSimAvx512
#include "kernels/cpu/simd/max_sim.inc"
