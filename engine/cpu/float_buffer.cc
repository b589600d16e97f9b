#include "engine/cpu/float_buffer.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace sluice {

void FloatBuffer::Free::operator()(float* data) const { std::free(data); }

absl::StatusOr<FloatBuffer> FloatBuffer::Allocate(int64_t floats, const char* what) {
  const int64_t rounded = (floats + kCacheLineFloats - 1) / kCacheLineFloats * kCacheLineFloats;
  void* data = std::aligned_alloc(kCacheLineFloats * sizeof(float), rounded * sizeof(float));
  if (data == nullptr && rounded > 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for ", rounded * sizeof(float), " bytes of ", what));
  }
  return FloatBuffer(static_cast<float*>(data), rounded);
}

}  // namespace sluice
