// Rotary positions (Su et al., arXiv 2104.09864; rotate-half form of Llama) and the write to the KV
// cache.
#pragma once

#include <cstdint>

#include "kernels/cuda/kv_cache.h"
#include "kernels/cuda/rows.h"
#include "kernels/simt/stream.h"

namespace sluice::kernels::cuda {

// The pairs are (i, i + h), h = rotary_dim / 2: x'_i = x_i cos - x_{i+h} sin, x'_{i+h} = x_{i+h}
// cos + x_i sin, in float. Features from rotary_dim on stay unchanged.
template <typename T>  // float, BFloat16
struct RopeArgs {
  const float* cos;          // [max_positions, rotary_dim / 2]
  const float* sin;          // like cos
  int32_t rotary_dim;        // even, <= head_dim; 0 means no rotation
  const int32_t* positions;  // [rows]
  const int32_t* kv_slots;   // [rows], all different
  int32_t q_heads;
  T* q;                // [rows, q_heads, head_dim], rotated in place
  const T* k;          // [rows, kv_heads, head_dim]
  const T* v;          // [rows, kv_heads, head_dim]
  int64_t stride = 0;  // from row to row of q, k and v; 0 if each is contiguous
  KvLayer<T> kv;       // receives the rotated k, and v
  LiveRows rows;
};

template <typename T>
void RopeAndStore(Stream& stream, const RopeArgs<T>& args);

}  // namespace sluice::kernels::cuda
