#include "kernels/cpu/norm.h"

#include <algorithm>

#include "kernels/cpu/simd/dispatch.h"

namespace sluice::kernels {
namespace {

// Calls f(offset, rows), which writes to `out`, for a few rows at a time. Quantises these rows
// while they are in a near cache.
template <typename Function>
void ForEachRow(const Context& context, int64_t rows, int64_t dim, const float* out,
                const QuantizedRows& quantized, Function f) {
  constexpr int64_t kElementsPerTask = 16384, kRowsAtOnce = 4;
  const int64_t grain = std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(1, dim));
  context.pool->ParallelFor(rows, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t first = begin; first < end; first += kRowsAtOnce) {
      const int64_t past = std::min(first + kRowsAtOnce, end);
      f(first * dim, past - first);
      if (!quantized.present()) continue;
      for (int64_t r = first; r < past; ++r) {
        QuantizeRow(context.profile, out + r * dim, r, quantized);
      }
    }
  });
}

}  // namespace

void RmsNorm(const Context& context, const float* x, const float* weight, float eps, int64_t rows,
             int64_t dim, float* out, const QuantizedRows& quantized) {
  const simd::Table& table = simd::TableFor(context.profile);
  ForEachRow(context, rows, dim, out, quantized, [&](int64_t at, int64_t count) {
    table.rms_norm(x + at, weight, eps, count, dim, out + at);
  });
}

void LayerNorm(const Context& context, const float* x, const float* weight, const float* bias,
               float eps, int64_t rows, int64_t dim, float* out, const QuantizedRows& quantized) {
  const simd::Table& table = simd::TableFor(context.profile);
  ForEachRow(context, rows, dim, out, quantized, [&](int64_t at, int64_t count) {
    table.layer_norm(x + at, weight, bias, eps, count, dim, out + at);
  });
}

}  // namespace sluice::kernels
