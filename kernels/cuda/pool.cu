#include "kernels/cuda/pool.h"

#include <cmath>

#include "kernels/cuda/row_walk.h"
#include "kernels/cuda/vector.h"

namespace sluice::kernels::cuda {
namespace {

// The columns of a thread: few, so that a sum over many rows has many threads.
template <typename T>
inline constexpr int32_t kSumWidth = sizeof(float) / sizeof(T);
// The rows that are read before their first is added.
constexpr int32_t kInFlight = 8;

// Returns the larger value; NaN if `value` is not finite or `most` is NaN.
__device__ inline double LargerFinite(double most, float value) {
  if (value - value != 0) return value - value;
  return value > most ? value : most;
}

template <typename T, int32_t kWidth>
__global__ void SumRowsKernel(OverRows<SumRowsArgs<T>> args) {
  const SumRowsArgs<T>& op = args.op;
  const RowWalk walk(args);
  const int32_t column = walk.item * kWidth, sums = *op.rows.count;
  if (column >= op.dim) return;
  for (int32_t s = walk.row; s < sums; s += walk.step) {
    const int32_t wanted = op.ranges[s].count;
    const bool largest = wanted < 0;
    const int32_t count = largest ? -wanted : wanted;
    const int32_t* const ids = op.ids + op.ranges[s].begin;
    double sum[kWidth];
    SLUICE_UNROLL
    for (int32_t k = 0; k < kWidth; ++k) sum[k] = largest ? -INFINITY : 0;
    for (int32_t i = 0; i < count; i += kInFlight) {
      Floats<kWidth> values[kInFlight] = {};
      SLUICE_UNROLL
      for (int32_t j = 0; j < kInFlight; ++j) {
        if (i + j < count) values[j] = Load<kWidth>(op.x + int64_t{ids[i + j]} * op.dim + column);
      }
      SLUICE_UNROLL
      for (int32_t j = 0; j < kInFlight; ++j) {
        SLUICE_UNROLL
        for (int32_t k = 0; k < kWidth; ++k) {
          if (i + j >= count) continue;
          const float value = values[j].at[k];
          sum[k] = largest ? LargerFinite(sum[k], value) : sum[k] + value;
        }
      }
    }
    SLUICE_UNROLL
    for (int32_t k = 0; k < kWidth; ++k) op.out[int64_t{s} * op.dim + column + k] = sum[k];
  }
}

template <typename T, int32_t kWidth>
const Kernel kSumRows = KernelOf(kWidth == kSumWidth<T> ? "SumRows" : "SumRowsUnaligned",
                                 &SumRowsKernel<T, kWidth>);

}  // namespace

template <typename T>
void SumRows(Stream& stream, const SumRowsArgs<T>& args) {
  constexpr int32_t kWidth = kSumWidth<T>;
  if (args.dim % kWidth == 0) {
    return LaunchOverRows(stream, kSumRows<T, kWidth>, args, args.dim / kWidth);
  }
  LaunchOverRows(stream, kSumRows<T, 1>, args, args.dim);
}

template void SumRows(Stream&, const SumRowsArgs<float>&);
template void SumRows(Stream&, const SumRowsArgs<BFloat16>&);

}  // namespace sluice::kernels::cuda
