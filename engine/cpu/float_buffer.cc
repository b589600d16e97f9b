#include "engine/cpu/float_buffer.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "base/size_of.h"
#include "kernels/cpu/memory.h"

namespace sluice {

void FloatBuffer::Free::operator()(float* data) const { std::free(data); }

void FloatBuffer::ReleaseBehind(int64_t kept) {
  kernels::ReleaseMemoryBehind(kept * kSizeOf<float>, data_.get(), bytes());
}

absl::StatusOr<FloatBuffer> FloatBuffer::Allocate(int64_t floats, const char* what) {
  const int64_t rounded = (floats + kCacheLineFloats - 1) / kCacheLineFloats * kCacheLineFloats;
  void* data = kernels::AllocateMemory(rounded * kSizeOf<float>);
  if (data == nullptr && rounded > 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for ", rounded * sizeof(float), " bytes of ", what));
  }
  return FloatBuffer(static_cast<float*>(data), rounded);
}

}  // namespace sluice
