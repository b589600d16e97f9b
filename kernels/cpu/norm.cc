#include "kernels/cpu/norm.h"

#include <algorithm>

#include "kernels/cpu/simd/dispatch.h"

namespace sluice::kernels {
namespace {

// Calls f(offset) for every row, and quantises what it wrote to `out`.
template <typename Function>
void ForEachRow(const Context& context, int64_t rows, int64_t dim, const float* out,
                const QuantizedRows& quantized, Function f) {
  constexpr int64_t kElementsPerTask = 16384;
  const int64_t grain = std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(1, dim));
  context.pool->ParallelFor(rows, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      f(r * dim);
      if (quantized.present()) QuantizeRow(context.profile, out + r * dim, r, quantized);
    }
  });
}

}  // namespace

void RmsNorm(const Context& context, const float* x, const float* weight, float eps, int64_t rows,
             int64_t dim, float* out, const QuantizedRows& quantized) {
  const simd::Table& table = simd::TableFor(context.profile);
  ForEachRow(context, rows, dim, out, quantized,
             [&](int64_t at) { table.rms_norm(x + at, weight, eps, dim, out + at); });
}

void LayerNorm(const Context& context, const float* x, const float* weight, const float* bias,
               float eps, int64_t rows, int64_t dim, float* out, const QuantizedRows& quantized) {
  const simd::Table& table = simd::TableFor(context.profile);
  ForEachRow(context, rows, dim, out, quantized,
             [&](int64_t at) { table.layer_norm(x + at, weight, bias, eps, dim, out + at); });
}

}  // namespace sluice::kernels
