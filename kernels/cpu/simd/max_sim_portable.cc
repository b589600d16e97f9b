#define SLUICE_SIMD_LANES 4
#define SLUICE_SIMD_NAMESPACE simd_max_sim_portable
#define SLUICE_SIMD_MAX_SIM MaxSimPortable
#include "kernels/cpu/simd/max_sim.inc"
