#include "kernels/cpu/activation.h"

#include <algorithm>

#include "base/enum_names.h"
#include "kernels/cpu/simd/dispatch.h"

namespace sluice::kernels {

static_assert(kActivations == CountEnumerators<Activation>(), "set kActivations");

void Activate(const Context& context, Activation activation, const float* in, const float* up,
              int64_t rows, int64_t dim, float* out, const QuantizedRows& quantized) {
  constexpr int64_t kElementsPerTask = 8192;
  const auto function = simd::TableFor(context.profile).activate[static_cast<int>(activation)];
  const auto activate = [&](int64_t begin, int64_t end) {
    function(in + begin, up == nullptr ? nullptr : up + begin, end - begin, out + begin);
  };
  if (!quantized.present()) {
    context.pool->ParallelFor(rows * dim, kElementsPerTask,
                              [&](int64_t begin, int64_t end, int) { activate(begin, end); });
    return;
  }
  const int64_t grain = std::max<int64_t>(1, kElementsPerTask / dim);
  context.pool->ParallelFor(rows, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      activate(r * dim, (r + 1) * dim);
      QuantizeRow(context.profile, out + r * dim, r, quantized);
    }
  });
}

void SoftCap(Profile profile, float cap, int64_t n, float* x) {
  simd::TableFor(profile).soft_cap(cap, n, x);
}

}  // namespace sluice::kernels
