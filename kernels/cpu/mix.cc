#include "kernels/cpu/mix.h"

#include <algorithm>

#include "kernels/cpu/simd/dispatch.h"

namespace sluice::kernels {

void Mix(const Context& context, const MixArgs& args) {
  constexpr int64_t kElementsPerTask = 16384;
  const simd::Table& table = simd::TableFor(context.profile);
  const int64_t dim = args.dim;
  const int64_t grain = std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(1, dim));
  context.pool->ParallelFor(args.rows, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      table.mix(args.a + r * dim, args.a_weight, args.b == nullptr ? nullptr : args.b + r * dim,
                args.b_weight, dim, args.out + r * dim);
    }
  });
}

}  // namespace sluice::kernels
