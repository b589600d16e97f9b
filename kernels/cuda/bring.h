// Copies of elements from global to shared memory, 16 bytes at a time. Device code only.
#pragma once

#include "kernels/cuda/bfloat16.h"
#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {

inline constexpr int32_t kCopyBytes = 16;

// The elements of one copy. Rows of shared memory are padded by this many, so that they spread over
// the banks and stay aligned.
template <typename T>
inline constexpr int32_t kCopyElements = kCopyBytes / sizeof(T);

// Copies the first `count` of kCopyElements elements at `from` and fills the rest with zeros. If
// `count` is 0 or less, all become zero and `from` may be any pointer. If kAsync, the copy is
// asynchronous and must be committed and waited for; then `to` and `from` are 16-byte aligned, and
// `valid` is an aligned address in global memory.
template <typename T, bool kAsync>
__device__ inline void Bring(T* to, const T* from, const T* valid, int32_t count) {
  count = count < 0 ? 0 : count < kCopyElements<T> ? count : kCopyElements<T>;
  if constexpr (kAsync) {
    CopyAsync(to, count > 0 ? from : valid, count * static_cast<int32_t>(sizeof(T)));
  } else {
    for (int32_t i = 0; i < kCopyElements<T>; ++i) to[i] = i < count ? from[i] : T{};
  }
}

// Returns whether rows of `width` elements from `data` on may be copied asynchronously.
template <typename T>
inline bool RowsAligned(const T* data, int64_t width) {
  return reinterpret_cast<uintptr_t>(data) % kCopyBytes == 0 && width % kCopyElements<T> == 0;
}

}  // namespace sluice::kernels::cuda
