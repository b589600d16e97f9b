#include "kernels/cpu/rope.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "kernels/cpu/simd/dispatch.h"

namespace sluice::kernels {
void RopeAndStore(const Context& context, const RopeTable& rope, const int32_t* positions,
                  const int32_t* kv_slots, int64_t rows, int32_t q_heads, float* q, const float* k,
                  const float* v, const KvLayer& kv) {
  constexpr int64_t kElementsPerTask = 8192;
  SLUICE_CHECK(kv.head_dim <= kMaxHeadDim);
  const simd::Table& table = simd::TableFor(context.profile);
  const int64_t head_dim = kv.head_dim, half = rope.rotary_dim / 2;
  const int64_t row_elements = (q_heads + 2 * kv.kv_heads) * head_dim;

  const auto store_row = [&](int64_t r) {
    const float* cos = rope.cos + positions[r] * half;
    const float* sin = rope.sin + positions[r] * half;
    for (int64_t h = 0; h < q_heads; ++h) {
      float* head = q + (r * q_heads + h) * head_dim;
      table.rotate(head, cos, sin, half, head);
    }
    for (int32_t h = 0; h < kv.kv_heads; ++h) {
      const int64_t in = (r * kv.kv_heads + h) * head_dim;
      float key[kMaxHeadDim];
      std::memcpy(key, k + in, head_dim * sizeof(float));
      table.rotate(key, cos, sin, half, key);
      StoreKey(kv, kv_slots[r], h, key);
      StoreValue(kv, kv_slots[r], h, v + in);
    }
  };

  const int64_t grain = std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(1, row_elements));
  context.pool->ParallelFor(rows, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) store_row(r);
  });
}

}  // namespace sluice::kernels
