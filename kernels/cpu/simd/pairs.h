// The GEMMs over panels of bf16 pairs; each is compiled for its own instruction set.
#pragma once

#include "kernels/cpu/simd/table.h"

namespace sluice::kernels::simd {

void GemmOfPairsByDots(const GemmBlock& block);   // VDPBF16PS
void GemmOfPairsByTiles(const GemmBlock& block);  // AMX

}  // namespace sluice::kernels::simd
