#include "kernels/cpu/exchange.h"

#include <algorithm>

#include "base/check.h"

namespace sluice::kernels {

void Exchange(const Context& context, const ExchangeArgs& args) {
  constexpr int64_t kElementsPerTask = 16384;
  SLUICE_CHECK(args.in != args.out);
  const int64_t rows = std::ssize(args.places), tokens = args.tokens, block = args.block;
  const int64_t width = tokens * block;
  const int64_t grain = std::max<int64_t>(1, kElementsPerTask / width);
  context.pool->ParallelFor(rows, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      float* const out = args.out + args.places[i] * width;
      const int64_t first = i / tokens * tokens, token = i - first;
      for (int64_t h = 0; h < tokens; ++h) {
        if (first + h < rows) {
          const float* const in = args.in + args.places[first + h] * width + token * block;
          std::copy_n(in, block, out + h * block);
        } else {
          std::fill_n(out + h * block, block, 0.0f);
        }
      }
    }
  });
}

}  // namespace sluice::kernels
