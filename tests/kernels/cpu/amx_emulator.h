// AMX's tile intrinsics in plain C++, for machines and builds without them: eight tiles of 16 rows
// of 64 bytes per thread. Tiles are NaN until the configuration is loaded.
#pragma once

#include <immintrin.h>  // defines the names below for all targets
#include <stdint.h>
#include <string.h>

#ifdef __AMX_TILE__
#error "compiled for AMX, which has these intrinsics"
#endif

namespace sluice::kernels::amx_emulator {

struct Tile {
  uint8_t rows[16][64];
};
inline thread_local Tile tiles[8];

inline void Configure() { memset(tiles, 0, sizeof(tiles)); }
inline void Release() { memset(tiles, 0xFF, sizeof(tiles)); }
inline void Zero(int tile) { memset(&tiles[tile], 0, sizeof(Tile)); }
inline void Load(int tile, const void* from, int64_t stride) {
  for (int64_t r = 0; r < 16; ++r) {
    memcpy(tiles[tile].rows[r], static_cast<const char*>(from) + r * stride, 64);
  }
}
inline void Store(int tile, void* to, int64_t stride) {
  for (int64_t r = 0; r < 16; ++r) {
    memcpy(static_cast<char*>(to) + r * stride, tiles[tile].rows[r], 64);
  }
}

inline float Widen(const uint8_t* bytes) {
  uint16_t half;
  memcpy(&half, bytes, sizeof(half));
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

// Computes sums[m][n] += sum over k of a[m][2 k + i] b[k][2 n + i], i in {0, 1}, with the bits
// observed on Sapphire Rapids: the sums for the two i are separate and fused, denormals are 0.
inline void MultiplyAdd(int sums, int a, int b) {
  const uint32_t control = _mm_getcsr();
  asm volatile("" : : : "memory");
  _mm_setcsr(control | 0x8040);
  asm volatile("" : : : "memory");
  for (int m = 0; m < 16; ++m) {
    for (int n = 0; n < 16; ++n) {
      float sum, even = 0, odd = 0;
      memcpy(&sum, &tiles[sums].rows[m][4 * n], sizeof(sum));
      for (int k = 0; k < 16; ++k) {
        const uint8_t* x = &tiles[a].rows[m][4 * k];
        const uint8_t* w = &tiles[b].rows[k][4 * n];
        even = __builtin_fmaf(Widen(x), Widen(w), even);
        odd = __builtin_fmaf(Widen(x + 2), Widen(w + 2), odd);
      }
      sum += even + odd;
      memcpy(&tiles[sums].rows[m][4 * n], &sum, sizeof(sum));
    }
  }
  asm volatile("" : : : "memory");
  _mm_setcsr(control);
}

// Computes sums[m][n] += sum over k of a[m][4 k + i] b[k][4 n + i], i in [0, 4), of unsigned by
// signed bytes, in integers that wrap.
inline void MultiplyAddBytes(int sums, int a, int b) {
  for (int m = 0; m < 16; ++m) {
    for (int n = 0; n < 16; ++n) {
      uint32_t sum;
      memcpy(&sum, &tiles[sums].rows[m][4 * n], sizeof(sum));
      for (int k = 0; k < 16; ++k) {
        for (int i = 0; i < 4; ++i) {
          const auto w = static_cast<int8_t>(tiles[b].rows[k][4 * n + i]);
          sum += static_cast<uint32_t>(tiles[a].rows[m][4 * k + i] * w);
        }
      }
      memcpy(&tiles[sums].rows[m][4 * n], &sum, sizeof(sum));
    }
  }
}

}  // namespace sluice::kernels::amx_emulator

#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#undef _tile_dpbusd
#define _tile_loadconfig(config) (void)(config), sluice::kernels::amx_emulator::Configure()
#define _tile_release() sluice::kernels::amx_emulator::Release()
#define _tile_zero(tile) sluice::kernels::amx_emulator::Zero(tile)
#define _tile_loadd(tile, from, stride) sluice::kernels::amx_emulator::Load(tile, from, stride)
#define _tile_stored(tile, to, stride) sluice::kernels::amx_emulator::Store(tile, to, stride)
#define _tile_dpbf16ps(sums, a, b) sluice::kernels::amx_emulator::MultiplyAdd(sums, a, b)
#define _tile_dpbusd(sums, a, b) sluice::kernels::amx_emulator::MultiplyAddBytes(sums, a, b)
