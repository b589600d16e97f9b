#include "kernels/cpu/rope.h"

#include <algorithm>
#include <cstring>

#include "base/ceil_div.h"
#include "base/check.h"
#include "kernels/cpu/simd/dispatch.h"

namespace sluice::kernels {
namespace {

// Rotates heads of the rows of a step.
class Rotation {
 public:
  Rotation(Profile profile, const RopeTable& rope, const int32_t* positions)
      : rotate_(simd::TableFor(profile).rotate), rope_(rope), positions_(positions) {}

  bool present() const { return rope_.rotary_dim > 0; }

  // Rotates a head of a row in place.
  void operator()(int64_t row, float* head) const {
    const int64_t half = rope_.rotary_dim / 2, at = positions_[row] * half;
    rotate_(head, rope_.cos + at, rope_.sin + at, half, head);
  }

  // Rotates all heads, [count, heads, head_dim], of the rows from `first` on.
  void RotateRows(int64_t first, int64_t count, int64_t heads, int64_t head_dim, float* x) const {
    for (int64_t h = 0; present() && h < count * heads; ++h) {
      (*this)(first + h / heads, x + h * head_dim);
    }
  }

 private:
  decltype(simd::Table::rotate) rotate_;
  RopeTable rope_;
  const int32_t* positions_;
};

// Returns how many rows a thread takes at once.
int64_t GrainOf(const ThreadPool& pool, int64_t rows, int64_t row_elements) {
  constexpr int64_t kElementsPerTask = 32768;
  const int64_t rows_of_thread = CeilDiv(rows, int64_t{pool.running()});
  return std::clamp<int64_t>(kElementsPerTask / std::max<int64_t>(1, row_elements), 1,
                             std::max<int64_t>(1, rows_of_thread));
}

}  // namespace

void RopeAndStore(const Context& context, const RopeTable& rope, const int32_t* positions,
                  const int32_t* kv_slots, int64_t rows, int32_t q_heads, float* q, const float* k,
                  const float* v, const KvLayer& kv) {
  constexpr int64_t kHeadsAhead = 3;
  SLUICE_CHECK(kv.head_dim <= kMaxHeadDim);
  const Rotation rotate(context.profile, rope, positions);
  const int64_t head_dim = kv.head_dim, stride = kv.kv_heads * head_dim;
  const int64_t row_elements = (q_heads + 2 * kv.kv_heads) * head_dim;

  // In a decode step, rows go to pages that are not adjacent, and the features of a key to most
  // lines of a slab. Prefetches the slots of head `head`, counted from the first head of `row` on
  // into the next row.
  const auto fetch = [&](int64_t row, int64_t head) {
    row += head / kv.kv_heads;
    if (row < rows) FetchSlot(kv, kv_slots[row], static_cast<int32_t>(head % kv.kv_heads));
  };
  // Rotates and writes rows [first, first + count), which are neighbours in a page.
  const auto store_rows = [&](int64_t first, int64_t count) {
    float rotated[kPageTokens * kMaxHeadDim];
    rotate.RotateRows(first, count, q_heads, head_dim, q + first * q_heads * head_dim);
    for (int32_t head = 0; head < kv.kv_heads; ++head) {
      if (count == 1) fetch(first, head + kHeadsAhead);
      const int64_t at = first * stride + head * head_dim;
      HeadRows keys = {k + at, stride};
      if (rotate.present()) {
        for (int64_t i = 0; i < count; ++i) {
          std::memcpy(rotated + i * head_dim, keys.x + i * stride, head_dim * sizeof(float));
          rotate(first + i, rotated + i * head_dim);
        }
        keys = {rotated, head_dim};
      }
      StoreHead(context.profile, kv, kv_slots[first], head, count, keys, {v + at, stride});
    }
  };

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
  context.pool->ParallelFor(rows, GrainOf(*context.pool, rows, row_elements),
                            kWorkOfElement * rows * row_elements, store);
}

void Rotate(const Context& context, const RopeTable& table, const int32_t* positions, int64_t rows,
            int32_t heads, int32_t head_dim, float* x) {
  const Rotation rotation(context.profile, table, positions);
  if (!rotation.present()) return;
  const int64_t width = int64_t{heads} * head_dim;
  const auto rotate = [&](int64_t begin, int64_t end, int /*worker*/) {
    rotation.RotateRows(begin, end - begin, heads, head_dim, x + begin * width);
  };
  context.pool->ParallelFor(rows, GrainOf(*context.pool, rows, width), 2 * rows * width, rotate);
}

}  // namespace sluice::kernels
