#define SLUICE_SIMD_LANES 16
#define SLUICE_SIMD_NAMESPACE simd_avx512
#define SLUICE_SIMD_TABLE kAvx512
#include "kernels/cpu/simd/table.inc"

#include "kernels/cpu/simd/pairs.h"

namespace sluice::kernels::simd {
namespace {

constexpr Table WithPairs(Table table, void (*gemm)(const GemmBlock&)) {
  table.gemm_bf16 = gemm;
  table.pairs = true;
  return table;
}

}  // namespace

constexpr Table kAvx512Bf16 = WithPairs(kAvx512, GemmOfPairsByDots);
constexpr Table kAmx = WithPairs(kAvx512, GemmOfPairsByTiles);

}  // namespace sluice::kernels::simd
