#include "kernels/cuda/mix.h"

#include "kernels/cuda/row_walk.h"
#include "kernels/cuda/vector.h"

namespace sluice::kernels::cuda {
namespace {

// Returns the weights of the features from `feature` on. Requires that `repeat` is 1 or a multiple
// of kWidth.
template <int32_t kWidth, typename T>
__device__ Floats<kWidth> WeightsOf(const T* weight, int32_t feature, int32_t repeat) {
  if (weight != nullptr && repeat == 1) return Load<kWidth>(weight + feature);
  const float each = weight == nullptr ? 1.0f : Widen(weight[feature / repeat]);
  Floats<kWidth> weights;
  SLUICE_UNROLL
  for (int32_t i = 0; i < kWidth; ++i) weights.at[i] = each;
  return weights;
}

template <typename T, int32_t kWidth>
__global__ void MixKernel(OverRows<MixArgs<T>> args) {
  const MixArgs<T>& op = args.op;
  const RowWalk walk(args);
  const int32_t feature = walk.item * kWidth, rows = *op.rows.count;
  if (feature >= op.dim) return;
  const auto a_weight = WeightsOf<kWidth>(op.a_weight, feature, op.repeat);
  const auto b_weight = WeightsOf<kWidth>(op.b_weight, feature, op.repeat);
  for (int32_t r = walk.row; r < rows; r += walk.step) {
    const int64_t place = r * (op.stride == 0 ? op.dim : op.stride) + feature;
    auto sum = Load<kWidth>(op.a + place);
    SLUICE_UNROLL
    for (int32_t i = 0; i < kWidth; ++i) sum.at[i] *= a_weight.at[i];
    if (op.b != nullptr) {
      const auto b = Load<kWidth>(op.b + place);
      SLUICE_UNROLL
      for (int32_t i = 0; i < kWidth; ++i) sum.at[i] += b.at[i] * b_weight.at[i];
    }
    Store(sum, op.out + place);
  }
}

template <typename T, int32_t kWidth>
const Kernel kMix = KernelOf(kWidth > 1 ? "Mix" : "MixUnaligned", &MixKernel<T, kWidth>);

}  // namespace

template <typename T>
void Mix(Stream& stream, const MixArgs<T>& args) {
  constexpr int32_t kWidth = kCopyElements<T>;
  const bool weights_aligned = args.repeat == 1 ? RowsAligned(args.a_weight, args.dim) &&
                                                      RowsAligned(args.b_weight, args.dim)
                                                : args.repeat % kWidth == 0;
  LaunchOverElements<T>(stream, kMix<T, kWidth>, kMix<T, 1>, args, args.dim,
                        weights_aligned && RowsAligned(args.a, args.dim) &&
                            RowsAligned(args.b, args.dim) && RowsAligned(args.out, args.dim) &&
                            RowsAligned(args.a, args.stride));
}

template void Mix(Stream&, const MixArgs<float>&);
template void Mix(Stream&, const MixArgs<BFloat16>&);

}  // namespace sluice::kernels::cuda
