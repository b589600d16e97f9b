#include "kernels/cuda/activation.h"

#include <cmath>

#include "kernels/cuda/simt.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int32_t kThreads = 256;

template <typename T>
__global__ void SwiGluKernel(SwiGluArgs<T> args) {
  const int64_t elements = int64_t{*args.rows.count} * args.dim;
  const int64_t step = int64_t{GridBlocks()} * kThreads;
  for (int64_t i = int64_t{BlockIndex()} * kThreads + ThreadIndex(); i < elements; i += step) {
    const float gate = Widen(args.gate[i]);
    args.out[i] = Narrow<T>(gate / (1.0f + expf(-gate)) * Widen(args.up[i]));
  }
}

template <typename T>
const Kernel kSwiGlu = KernelOf("SwiGlu", &SwiGluKernel<T>);

}  // namespace

template <typename T>
void SwiGlu(Stream& stream, const SwiGluArgs<T>& args) {
  const int64_t blocks = (int64_t{args.rows.capacity} * args.dim + kThreads - 1) / kThreads;
  Launch(stream, kSwiGlu<T>, {PersistentBlocks(stream, blocks, 8), kThreads}, args);
}

template void SwiGlu(Stream&, const SwiGluArgs<float>&);
template void SwiGlu(Stream&, const SwiGluArgs<BFloat16>&);

}  // namespace sluice::kernels::cuda
