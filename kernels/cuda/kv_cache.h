// The paged keys and values of one layer on a GPU.
//
// A page holds kPageTokens consecutive positions of one sequence:
//   k, v: [pages, kv_heads, kPageTokens, head_dim]
// A KV slot is page * kPageTokens + position % kPageTokens. Slots that were never written are never
// read.
#pragma once

#include <cstdint>

#include "kernels/cuda/bfloat16.h"

namespace sluice::kernels::cuda {

inline constexpr int32_t kPageTokens = 16;

template <typename T>  // float, BFloat16
struct KvLayer {
  T* k;  // 16-byte aligned, like v
  T* v;
  int32_t kv_heads;
  int32_t head_dim;

  // Returns the index of the first feature of a page's head.
  SLUICE_HOST_DEVICE int64_t PageOffset(int64_t page, int32_t head) const {
    return (page * kv_heads + head) * kPageTokens * head_dim;
  }
  // Returns the index of the first feature of a slot's head.
  SLUICE_HOST_DEVICE int64_t Offset(int32_t slot, int32_t head) const {
    return PageOffset(slot / kPageTokens, head) + slot % kPageTokens * head_dim;
  }
};

}  // namespace sluice::kernels::cuda
