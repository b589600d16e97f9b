#include "kernels/cpu/activation.h"

#include "kernels/cpu/simd/dispatch.h"

namespace sluice::kernels {

void SwiGlu(const Context& context, const float* gate, const float* up, int64_t rows, int64_t dim,
            float* out) {
  constexpr int64_t kElementsPerTask = 8192;
  const simd::Table& table = simd::TableFor(context.profile);
  context.pool->ParallelFor(rows * dim, kElementsPerTask, [&](int64_t begin, int64_t end, int) {
    table.swiglu(gate + begin, up + begin, end - begin, out + begin);
  });
}

}  // namespace sluice::kernels
