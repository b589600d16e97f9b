#include "kernels/cuda/activation.h"

#include <cmath>

#include "kernels/cuda/simt.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int32_t kThreads = 256;

// Keeps a NaN, as fmaxf would not.
__device__ inline float Relu(float x) { return x < 0.0f ? 0.0f : x; }

__device__ inline float Apply(Activation activation, float x) {
  switch (activation) {
    case Activation::kSilu:
      return x / (1.0f + expf(-x));
    case Activation::kGelu:
      return x * 0.5f * erfcf(x * -0.70710678f);
    case Activation::kGeluTanh:
      // (1 + tanh(u)) / 2 = 1 / (1 + e^(-2u)), u = sqrt(2 / pi) (x + 0.044715 x^3)
      return x / (1.0f + expf(-(x * (1.59576912f + 0.0713548162f * (x * x)))));
    case Activation::kRelu:
      return Relu(x);
    case Activation::kSquaredRelu:
      return Relu(x) * Relu(x);
  }
  return x;
}

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
