// Rotary positions (Su et al., arXiv 2104.09864; rotate-half form of Llama) and the write to the KV
// cache.
//
// The pairs are (i, i + h), h = rotary_dim / 2:
//   x'_i = x_i cos - x_{i+h} sin,  x'_{i+h} = x_{i+h} cos + x_i sin
#pragma once

#include <cstdint>

#include "kernels/cpu/context.h"
#include "kernels/cpu/kv_cache.h"

namespace sluice::kernels {

// The cosines and sines: [max_positions, rotary_dim / 2], made once per model (in double, rounded
// once).
struct RopeTable {
  const float* cos;
  const float* sin;
  int32_t rotary_dim;  // even, <= head_dim; 0 means no rotation. Features past it stay unchanged.
};

// For each row r at positions[r], rotates q[r] (in place) and k[r], and writes k[r] and v[r] to
// slot kv_slots[r] of `kv`.
//   q: [rows, q_heads, head_dim]   k, v: [rows, kv_heads, head_dim], unchanged
void RopeAndStore(const Context& context, const RopeTable& table, const int32_t* positions,
                  const int32_t* kv_slots, int64_t rows, int32_t q_heads, float* q, const float* k,
                  const float* v, const KvLayer& kv);

// Rotates the heads of each row r of x, [rows, heads, head_dim], at positions[r], in place.
void Rotate(const Context& context, const RopeTable& table, const int32_t* positions, int64_t rows,
            int32_t heads, int32_t head_dim, float* x);

}  // namespace sluice::kernels
