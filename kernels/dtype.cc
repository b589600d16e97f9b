#include "kernels/dtype.h"

#include <bit>
#include <cstring>

#include "base/check.h"

namespace sluice::kernels {
namespace {

float FromHalf(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7FFFu;
  if (magnitude >= 0x7C00u) {  // infinity or NaN; the payload is kept
    return std::bit_cast<float>(sign | 0x7F800000u | (magnitude & 0x3FFu) << 13);
  }
  // Reinterpreted as a float, the bits are too small by a factor of 2^112. The product is exact,
  // also for denormals.
  return std::bit_cast<float>(
      sign | std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude << 13) * 0x1p112f));
}

float FromBFloat16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

template <float (*Widen)(uint16_t)>
void Convert16(const char* data, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    uint16_t bits;
    std::memcpy(&bits, data + 2 * i, sizeof(bits));
    out[i] = Widen(bits);
  }
}

}  // namespace

float LoadAsFloat(const void* data, DType dtype, int64_t i) {
  float out;
  ConvertToFloat(data, dtype, i, 1, &out);
  return out;
}

void ConvertToFloat(const void* data, DType dtype, int64_t first, int64_t n, float* out) {
  if (n <= 0) return;
  const char* begin = static_cast<const char*>(data) + first * DTypeBytes(dtype);
  switch (dtype) {
    case DType::kF32:
      std::memcpy(out, begin, n * sizeof(float));
      break;
    case DType::kF16:
      Convert16<FromHalf>(begin, n, out);
      break;
    case DType::kBF16:
      Convert16<FromBFloat16>(begin, n, out);
      break;
    case DType::kI8:
      for (int64_t i = 0; i < n; ++i) out[i] = static_cast<signed char>(begin[i]);
      break;
    case DType::kI32:
      SLUICE_CHECK(dtype != DType::kI32);
  }
}

}  // namespace sluice::kernels
