#include "kernels/cpu/norm.h"

#include <algorithm>

#include "kernels/cpu/simd/dispatch.h"

namespace sluice::kernels {

void RmsNorm(const Context& context, const float* x, const float* weight, float eps, int64_t rows,
             int64_t dim, float* out) {
  constexpr int64_t kElementsPerTask = 16384;
  const simd::Table& table = simd::TableFor(context.profile);
  const int64_t grain = std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(1, dim));
  context.pool->ParallelFor(rows, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      table.rms_norm(x + r * dim, weight, eps, dim, out + r * dim);
    }
  });
}

}  // namespace sluice::kernels
