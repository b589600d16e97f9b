#include "kernels/cpu/rope.h"

#include <algorithm>
#include <cstring>

#include "base/ceil_div.h"
#include "base/check.h"
#include "kernels/cpu/simd/dispatch.h"

namespace sluice::kernels {

void RopeAndStore(const Context& context, const RopeTable& rope, const int32_t* positions,
                  const int32_t* kv_slots, int64_t rows, int32_t q_heads, float* q, const float* k,
                  const float* v, const KvLayer& kv) {
  constexpr int64_t kElementsPerTask = 32768, kHeadsAhead = 3;
  SLUICE_CHECK(kv.head_dim <= kMaxHeadDim);
  const simd::Table& table = simd::TableFor(context.profile);
  const int64_t head_dim = kv.head_dim, half = rope.rotary_dim / 2;
  const int64_t row_elements = (q_heads + 2 * kv.kv_heads) * head_dim;
  const int64_t key_stride = kv.kv_heads * head_dim;

  const auto rotate = [&](int64_t row, const float* from, float* to) {
    const int64_t at = positions[row] * half;
    table.rotate(from, rope.cos + at, rope.sin + at, half, to);
  };
  // Writes the keys of a head for rows [first, first + count), which are neighbours in a page.
  const auto store_keys = [&](int64_t first, int64_t count, int32_t head, float* rotated) {
    const float* keys = k + first * key_stride + head * head_dim;
    int64_t stride = key_stride;
    if (half > 0) {
      for (int64_t i = 0; i < count; ++i) {
        float* const key = rotated + i * head_dim;
        std::memcpy(key, keys + i * stride, head_dim * sizeof(float));
        rotate(first + i, key, key);
      }
      keys = rotated;
      stride = head_dim;
    }
    if (count > 1 && kv.type == KvType::kF32) {
      return table.store_keys(keys, stride, count, head_dim, F32Key(kv, kv_slots[first], head));
    }
    for (int64_t i = 0; i < count; ++i) StoreKey(kv, kv_slots[first + i], head, keys + i * stride);
  };
  // Rows of a decode step go to pages that lie apart, and the features of a key to most lines of a
  // slab. Fetches that of a head of this row or the next, counted through.
  const auto fetch = [&](int64_t row, int64_t head) {
    row += head / kv.kv_heads;
    if (row < rows) FetchSlot(kv, kv_slots[row], static_cast<int32_t>(head % kv.kv_heads));
  };
  const auto store_rows = [&](int64_t first, int64_t count) {
    float rotated[kPageTokens * kMaxHeadDim];
    for (int64_t h = 0; half > 0 && h < count * q_heads; ++h) {
      float* const query = q + (first * q_heads + h) * head_dim;
      rotate(first + h / q_heads, query, query);
    }
    for (int32_t head = 0; head < kv.kv_heads; ++head) {
      if (count == 1) fetch(first, head + kHeadsAhead);
      store_keys(first, count, head, rotated);
      for (int64_t r = first; r < first + count; ++r) {
        StoreValue(kv, kv_slots[r], head, v + r * key_stride + head * head_dim);
      }
    }
  };

  const int64_t rows_of_thread = CeilDiv(rows, int64_t{context.pool->threads()});
  const int64_t grain = std::clamp<int64_t>(kElementsPerTask / std::max<int64_t>(1, row_elements),
                                            1, std::max<int64_t>(1, rows_of_thread));
  constexpr int64_t kWorkOfElement = 4;  // in multiply-adds; most of it is the writing to pages
  const auto store = [&](int64_t begin, int64_t end, int /*worker*/) {
    while (begin < end) {
      int64_t past = begin + 1;
      while (past < end && kv_slots[past] == kv_slots[past - 1] + 1 &&
             kv_slots[past] % kPageTokens != 0) {
        ++past;
      }
      store_rows(begin, past - begin);
      begin = past;
    }
  };
  context.pool->ParallelFor(rows, grain, kWorkOfElement * rows * row_elements, store);
}

}  // namespace sluice::kernels
