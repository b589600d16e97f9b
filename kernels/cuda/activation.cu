#include "kernels/cuda/activation.h"

#include "kernels/cuda/activation_math.h"
#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int32_t kThreads = 256;

template <typename T>
__global__ void ActivateKernel(ActivationArgs<T> args) {
  const int64_t elements = int64_t{*args.rows.count} * args.dim;
  const int64_t step = int64_t{GridBlocks()} * kThreads;
  for (int64_t i = int64_t{BlockIndex()} * kThreads + ThreadIndex(); i < elements; i += step) {
    float value = Apply(args.activation, Widen(args.in[i]));
    if (args.up != nullptr) value *= Widen(args.up[i]);
    args.out[i] = Narrow<T>(value);
  }
}

template <typename T>
const Kernel kActivate = KernelOf("Activate", &ActivateKernel<T>);

}  // namespace

template <typename T>
void Activate(Stream& stream, const ActivationArgs<T>& args) {
  const int64_t blocks = (int64_t{args.rows.capacity} * args.dim + kThreads - 1) / kThreads;
  Launch(stream, kActivate<T>, {PersistentBlocks(stream, blocks, 8), kThreads}, args);
}

template void Activate(Stream&, const ActivationArgs<float>&);
template void Activate(Stream&, const ActivationArgs<BFloat16>&);

}  // namespace sluice::kernels::cuda
