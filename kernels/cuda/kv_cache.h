// The paged keys and values of one layer on a GPU.
//
// A page holds kPageTokens consecutive positions of one sequence:
//   k, v: [pages, kv_heads, kPageTokens, head_dim]
// A KV slot is page * kPageTokens + position % kPageTokens. Slots that were never written are never
// read.
//
// Rows that are a multiple of 128 bytes long are stored turned (TurnOf): in slot s, the 16 bytes
// with index i are at index i ^ s % 8. Attention copies pages unchanged to shared memory, and there
// the same features of 8 neighbouring rows are in different banks.
#pragma once

#include <cstdint>

#include "kernels/cuda/bfloat16.h"

namespace sluice::kernels::cuda {

inline constexpr int32_t kPageTokens = 16;

// Returns the index of feature `d` in a row that is turned by `turn`.
template <typename T>
SLUICE_HOST_DEVICE constexpr int32_t TurnedPlace(int32_t d, int32_t turn) {
  constexpr int32_t kElements = 16 / sizeof(T);
  return (d / kElements ^ turn) * kElements + d % kElements;
}

// The row of one position and head.
template <typename T>
struct KvRow {
  T* first;
  int32_t turn;

  // Returns the address of feature `d`. The 16 bytes that it is part of are contiguous.
  SLUICE_HOST_DEVICE T* At(int32_t d) const { return first + TurnedPlace<T>(d, turn); }
};

template <typename T>  // float, BFloat16
struct KvLayer {
  T* k;  // 16-byte aligned, like v
  T* v;
  int32_t kv_heads;
  int32_t head_dim;

  // Returns the index of the first element of a page's head.
  SLUICE_HOST_DEVICE int64_t PageOffset(int64_t page, int32_t head) const {
    return (page * kv_heads + head) * kPageTokens * head_dim;
  }
  SLUICE_HOST_DEVICE int32_t TurnOf(int32_t slot) const {
    return head_dim * static_cast<int32_t>(sizeof(T)) % 128 == 0 ? slot % 8 : 0;
  }
  // Returns the row of a slot's head in `layer`, which is k or v.
  template <typename Element>  // T or const T
  SLUICE_HOST_DEVICE KvRow<Element> Row(Element* layer, int32_t slot, int32_t head) const {
    return {layer + PageOffset(slot / kPageTokens, head) + slot % kPageTokens * head_dim,
            TurnOf(slot)};
  }
};

}  // namespace sluice::kernels::cuda
