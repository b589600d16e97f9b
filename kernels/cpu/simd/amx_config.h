// The configuration of AMX's tiles. See vec.h for the rules.
#pragma once

#include "kernels/cpu/simd/vec.h"

namespace sluice::kernels::SLUICE_SIMD_NAMESPACE {

// All eight tiles have 16 rows of 64 bytes.
struct alignas(kCacheLine) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);
inline constexpr TileConfig kTileConfig;

}  // namespace sluice::kernels::SLUICE_SIMD_NAMESPACE
