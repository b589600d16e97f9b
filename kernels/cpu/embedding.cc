#include "kernels/cpu/embedding.h"

#include <algorithm>

namespace sluice::kernels {

void Embed(const Context& context, const void* table, DType dtype, const int32_t* ids, int64_t rows,
           int64_t dim, float* out) {
  constexpr int64_t kElementsPerTask = 16384;
  const int64_t grain = std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(1, dim));
  context.pool->ParallelFor(rows, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      ConvertToFloat(table, dtype, ids[r] * dim, dim, out + r * dim);
    }
  });
}

}  // namespace sluice::kernels
