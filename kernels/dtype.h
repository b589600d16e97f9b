// The element types of stored weights.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace sluice::kernels {

// kI32: words of packed values; not weights by themselves.
enum class DType { kF32, kF16, kBF16, kI8, kI32 };

constexpr int64_t DTypeBytes(DType dtype) {
  if (dtype == DType::kF32 || dtype == DType::kI32) return 4;
  return dtype == DType::kI8 ? 1 : 2;
}

// The most rows of a matrix in int8. With more, sums of products of at most 128 * 128 each may
// exceed int32_t.
inline constexpr int64_t kMaxInt8Depth = int64_t{1} << 17;

// Returns element `i` of a little-endian array of `dtype`, widened, which is exact.
// `data` need not be aligned.
float LoadAsFloat(const void* data, DType dtype, int64_t i);

// Rounds to bf16: to nearest, ties to even; NaN stays NaN.
constexpr uint16_t RoundToBF16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const bool is_nan = (bits & 0x7FFFFFFF) > 0x7F800000;
  const uint32_t rounded = bits + 0x7FFF + (bits >> 16 & 1);
  return static_cast<uint16_t>((is_nan ? bits | 0x400000 : rounded) >> 16);
}

// Widens `n` elements, from element `first` on, into `out`. `dtype` must not be kI32.
void ConvertToFloat(const void* data, DType dtype, int64_t first, int64_t n, float* out);

}  // namespace sluice::kernels
