#include "kernels/cpu/activation.h"

#include "kernels/cpu/simd/dispatch.h"

namespace sluice::kernels {

void Activate(const Context& context, Activation activation, const float* in, const float* up,
              int64_t rows, int64_t dim, float* out) {
  constexpr int64_t kElementsPerTask = 8192;
  const auto activate = simd::TableFor(context.profile).activate[static_cast<int>(activation)];
  context.pool->ParallelFor(rows * dim, kElementsPerTask, [&](int64_t begin, int64_t end, int) {
    activate(in + begin, up == nullptr ? nullptr : up + begin, end - begin, out + begin);
  });
}

void SoftCap(Profile profile, float cap, int64_t n, float* x) {
  simd::TableFor(profile).soft_cap(cap, n, x);
}

}  // namespace sluice::kernels
