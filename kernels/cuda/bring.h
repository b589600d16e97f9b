// Elements from global to shared memory, 16 bytes at a time. Device code only.
#pragma once

#include "kernels/cuda/bfloat16.h"
#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {

inline constexpr int32_t kCopyBytes = 16;

// Elements of one copy; also what pads a row of shared memory, so that rows spread over the banks
// and stay aligned.
template <typename T>
inline constexpr int32_t kCopyElements = kCopyBytes / sizeof(T);

// Brings the first `count` of kCopyElements elements at `from`, and zeros in the place of the
// others; any count, where 0 and less bring zeros alone and `from` may point anywhere. Asynchronous
// (to be committed and waited for) when kAsync: then both are 16-byte aligned, and `valid` is an
// aligned address in global memory.
template <typename T, bool kAsync>
__device__ inline void Bring(T* to, const T* from, const T* valid, int32_t count) {
  count = count < 0 ? 0 : count < kCopyElements<T> ? count : kCopyElements<T>;
  if constexpr (kAsync) {
    CopyAsync(to, count > 0 ? from : valid, count * static_cast<int32_t>(sizeof(T)));
  } else {
    for (int32_t i = 0; i < kCopyElements<T>; ++i) to[i] = i < count ? from[i] : Narrow<T>(0.0f);
  }
}

// Whether rows of `width` elements from `data` on may be brought asynchronously.
template <typename T>
inline bool RowsAligned(const T* data, int64_t width) {
  return reinterpret_cast<uintptr_t>(data) % kCopyBytes == 0 && width % kCopyElements<T> == 0;
}

}  // namespace sluice::kernels::cuda
