// bfloat16 is the upper half of a float: 8 bits of exponent, 7 of mantissa.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define SLUICE_HOST_DEVICE __host__ __device__
#else
#define SLUICE_HOST_DEVICE
#endif

namespace sluice::kernels::cuda {

struct BFloat16 {
  uint16_t bits;
};

// Converts to float exactly.
SLUICE_HOST_DEVICE inline float Widen(float x) { return x; }
SLUICE_HOST_DEVICE inline float Widen(int8_t x) { return static_cast<float>(x); }
SLUICE_HOST_DEVICE inline float Widen(BFloat16 x) {
  const uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

// Rounds to nearest, ties to even; NaN stays NaN.
SLUICE_HOST_DEVICE inline BFloat16 RoundToBFloat16(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof(bits));
  if (x != x) return {static_cast<uint16_t>(bits >> 16 | 0x40)};
  return {static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16)};
}

// Returns the T nearest to x.
template <typename T>
SLUICE_HOST_DEVICE T Narrow(float x);
template <>
SLUICE_HOST_DEVICE inline float Narrow<float>(float x) {
  return x;
}
template <>
SLUICE_HOST_DEVICE inline BFloat16 Narrow<BFloat16>(float x) {
  return RoundToBFloat16(x);
}

}  // namespace sluice::kernels::cuda
