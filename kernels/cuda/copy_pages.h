// Copies of the first positions of KV pages, for sequences that share a part of a page.
#pragma once

#include <cstdint>

#include "kernels/cuda/bfloat16.h"
#include "kernels/cuda/rows.h"
#include "kernels/page_copy.h"
#include "kernels/simt/stream.h"

namespace sluice::kernels::cuda {

// For each copy, matrix and head:
//   kv[matrix, to, head, p] = kv[matrix, from, head, p]  for p in [0, positions)
// A page is not both source and target, and not a target twice. Other positions stay unchanged.
template <typename T>  // float, BFloat16
struct CopyPagesArgs {
  T* kv;             // [matrices, pages, kv_heads, kPageTokens, head_dim]
  int32_t matrices;  // the keys and the values of all layers
  int32_t pages;
  int32_t kv_heads;
  int32_t head_dim;
  const PageCopy* copies;  // [rows]
  LiveRows rows;
};

template <typename T>
void CopyPages(Stream& stream, const CopyPagesArgs<T>& args);

}  // namespace sluice::kernels::cuda
