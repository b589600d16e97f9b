#include "kernels/cuda/activation.h"

#include "kernels/cuda/activation_math.h"
#include "kernels/cuda/row_walk.h"
#include "kernels/cuda/vector.h"

namespace sluice::kernels::cuda {
namespace {

template <Activation kActivation, int32_t kWidth>
__device__ void ApplyToEach(Floats<kWidth>& values) {
  SLUICE_UNROLL
  for (int32_t i = 0; i < kWidth; ++i) values.at[i] = Apply(kActivation, values.at[i]);
}

// Chooses the function once for all values.
template <int32_t kWidth>
__device__ void ApplyToAll(Activation activation, Floats<kWidth>& values) {
  switch (activation) {
    case Activation::kSilu:
      return ApplyToEach<Activation::kSilu>(values);
    case Activation::kGelu:
      return ApplyToEach<Activation::kGelu>(values);
    case Activation::kGeluTanh:
      return ApplyToEach<Activation::kGeluTanh>(values);
    case Activation::kRelu:
      return ApplyToEach<Activation::kRelu>(values);
    case Activation::kSquaredRelu:
      return ApplyToEach<Activation::kSquaredRelu>(values);
  }
}

template <typename T, int32_t kWidth>
__global__ void ActivateKernel(OverRows<ActivationArgs<T>> args) {
  const ActivationArgs<T>& op = args.op;
  const RowWalk walk(args);
  const int32_t column = walk.item * kWidth, rows = *op.rows.count;
  if (column >= op.dim) return;
  for (int32_t r = walk.row; r < rows; r += walk.step) {
    const int64_t place = r * (op.stride == 0 ? op.dim : op.stride) + column;
    auto values = Load<kWidth>(op.in + place);
    ApplyToAll(op.activation, values);
    if (op.up != nullptr) {
      const auto up = Load<kWidth>(op.up + place);
      SLUICE_UNROLL
      for (int32_t i = 0; i < kWidth; ++i) values.at[i] *= up.at[i];
    }
    Store(values, op.out + int64_t{r} * op.dim + column);
  }
}

template <typename T, int32_t kWidth>
const Kernel kActivate = KernelOf(kWidth > 1 ? "Activate" : "ActivateUnaligned",
                                  &ActivateKernel<T, kWidth>);

}  // namespace

template <typename T>
void Activate(Stream& stream, const ActivationArgs<T>& args) {
  const bool aligned = RowsAligned(args.in, args.dim) && RowsAligned(args.up, args.dim) &&
                       RowsAligned(args.out, args.dim) && RowsAligned(args.in, args.stride);
  LaunchOverElements<T>(stream, kActivate<T, kCopyElements<T>>, kActivate<T, 1>, args, args.dim,
                        aligned);
}

template void Activate(Stream&, const ActivationArgs<float>&);
template void Activate(Stream&, const ActivationArgs<BFloat16>&);

}  // namespace sluice::kernels::cuda
