#include "kernels/cuda/norm.h"

#include <cmath>

#include "base/check.h"
#include "kernels/cuda/reduce.h"
#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int32_t kThreads = 128;

struct NormShared {
  float reduce[kWarp];
};

// Returns the sum over a row of f(element), computed by the whole block.
template <typename T, typename Function>
__device__ float SumOver(const T* row, int32_t dim, NormShared& shared, Function f) {
  float sum = 0;
  for (int32_t i = ThreadIndex(); i < dim; i += kThreads) sum += f(Widen(row[i]));
  return BlockReduce(sum, Plus(), shared.reduce);
}

// Writes x + residual to `sum`. Each thread writes the elements that it reads again later.
template <typename T>
__device__ void AddResidual(const T* x, const T* residual, int32_t dim, T* sum) {
  for (int32_t i = ThreadIndex(); i < dim; i += kThreads) {
    sum[i] = Narrow<T>(Widen(x[i]) + Widen(residual[i]));
  }
}

template <typename T, bool kCentred>
__global__ void NormKernel(NormArgs<T> args) {
  auto& shared = SharedMemory<NormShared>();
  const int32_t rows = *args.rows.count * args.groups, dim = args.dim;
  for (int32_t r = BlockIndex(); r < rows; r += GridBlocks()) {
    const int64_t offset = int64_t{r} * dim;
    const T* row = args.x + offset;
    if (args.residual != nullptr) {
      AddResidual(row, args.residual + offset, dim, args.sum + offset);
      row = args.sum + offset;
    }
    float mean = 0;
    if (kCentred) {
      mean = SumOver(row, dim, shared, [](float s) { return s; }) / static_cast<float>(dim);
    }
    const float squares =
        SumOver(row, dim, shared, [mean](float s) { return (s - mean) * (s - mean); });
    const float scale = 1.0f / sqrtf(squares / static_cast<float>(dim) + args.eps);
    for (int32_t i = ThreadIndex(); i < dim; i += kThreads) {
      float value = (Widen(row[i]) - mean) * scale;
      if (args.weight != nullptr) value *= Widen(args.weight[i]);
      if (args.bias != nullptr) value += Widen(args.bias[i]);
      args.out[offset + i] = Narrow<T>(value * args.scale);
    }
  }
}

template <typename T>
const Kernel kRmsNorm = KernelOf("RmsNorm", &NormKernel<T, false>);
template <typename T>
const Kernel kLayerNorm = KernelOf("LayerNorm", &NormKernel<T, true>);

template <typename T>
void LaunchNorm(Stream& stream, const Kernel& kernel, const NormArgs<T>& args) {
  SLUICE_CHECK((args.residual == nullptr) == (args.sum == nullptr));
  Launch(stream, kernel,
         {PersistentBlocks(stream, int64_t{args.rows.capacity} * args.groups, 16), kThreads,
          sizeof(NormShared)},
         args);
}

}  // namespace

template <typename T>
void RmsNorm(Stream& stream, const NormArgs<T>& args) {
  SLUICE_CHECK(args.bias == nullptr);
  LaunchNorm(stream, kRmsNorm<T>, args);
}
template <typename T>
void LayerNorm(Stream& stream, const NormArgs<T>& args) {
  LaunchNorm(stream, kLayerNorm<T>, args);
}

template void RmsNorm(Stream&, const NormArgs<float>&);
template void RmsNorm(Stream&, const NormArgs<BFloat16>&);
template void LayerNorm(Stream&, const NormArgs<float>&);
template void LayerNorm(Stream&, const NormArgs<BFloat16>&);

}  // namespace sluice::kernels::cuda
