#include "kernels/cpu/embedding.h"

#include <algorithm>
#include <cstring>

namespace sluice::kernels {

void Embed(const Context& context, const float* table, const int32_t* ids, int64_t rows,
           int64_t dim, float* out) {
  constexpr int64_t kElementsPerTask = 16384;
  const int64_t grain = std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(1, dim));
  context.pool->ParallelFor(rows, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      std::memcpy(out + r * dim, table + ids[r] * dim, static_cast<size_t>(dim) * sizeof(float));
    }
  });
}

}  // namespace sluice::kernels
