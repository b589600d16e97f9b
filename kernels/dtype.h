// The element types of stored weights.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::kernels {

enum class DType { kF32, kF16, kBF16, kI8 };

constexpr int64_t DTypeBytes(DType dtype) {
  return dtype == DType::kF32 ? 4 : dtype == DType::kI8 ? 1 : 2;
}

// Returns element `i` of a little-endian array of `dtype`, widened, which is exact.
// `data` need not be aligned.
float LoadAsFloat(const void* data, DType dtype, int64_t i);

// Widens `n` elements, beginning with element `first`, into `out`.
void ConvertToFloat(const void* data, DType dtype, int64_t first, int64_t n, float* out);

}  // namespace sluice::kernels
