#include "kernels/cuda/mix.h"

#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int32_t kThreads = 256;

template <typename T>
__device__ float Weighted(const T* values, const T* weight, int64_t i, int64_t feature) {
  const float value = Widen(values[i]);
  return weight == nullptr ? value : value * Widen(weight[feature]);
}

template <typename T>
__global__ void MixKernel(MixArgs<T> args) {
  const int64_t elements = int64_t{*args.rows.count} * args.dim;
  const int64_t step = int64_t{GridBlocks()} * kThreads;
  for (int64_t i = int64_t{BlockIndex()} * kThreads + ThreadIndex(); i < elements; i += step) {
    const int64_t feature = i % args.dim / args.repeat;
    float sum = Weighted(args.a, args.a_weight, i, feature);
    if (args.b != nullptr) sum += Weighted(args.b, args.b_weight, i, feature);
    args.out[i] = Narrow<T>(sum);
  }
}

template <typename T>
const Kernel kMix = KernelOf("Mix", &MixKernel<T>);

}  // namespace

template <typename T>
void Mix(Stream& stream, const MixArgs<T>& args) {
  const int64_t blocks = (int64_t{args.rows.capacity} * args.dim + kThreads - 1) / kThreads;
  Launch(stream, kMix<T>, {PersistentBlocks(stream, blocks, 8), kThreads}, args);
}

template void Mix(Stream&, const MixArgs<float>&);
template void Mix(Stream&, const MixArgs<BFloat16>&);

}  // namespace sluice::kernels::cuda
