// float16 has 5 bits of exponent and 10 of mantissa.
#pragma once

#include <cstdint>

#include "kernels/cuda/bfloat16.h"

namespace sluice::kernels::cuda {

struct Float16 {
  uint16_t bits;
};

// Converts to float exactly; a NaN keeps its payload. Like LoadAsFloat (kernels/dtype.h).
SLUICE_HOST_DEVICE inline float Widen(Float16 x) {
  const uint32_t magnitude = (x.bits & 0x7FFFu) << 13;
  const uint32_t sign = (x.bits & 0x8000u) << 16;
  uint32_t bits = magnitude | 0x7F800000u;  // infinity or NaN
  float value;
  if ((x.bits & 0x7C00u) != 0x7C00u) {
    // As a float, the bits are too small by a factor of 2^112. The product is exact, including
    // denormals.
    __builtin_memcpy(&value, &magnitude, sizeof(value));
    value *= 0x1p112f;
    __builtin_memcpy(&bits, &value, sizeof(bits));
  }
  bits |= sign;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

}  // namespace sluice::kernels::cuda
