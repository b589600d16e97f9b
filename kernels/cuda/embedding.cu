#include "kernels/cuda/embedding.h"

#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int32_t kThreads = 128;

template <typename T>
__global__ void EmbedKernel(EmbedArgs<T> args) {
  const int32_t rows = *args.rows.count;
  for (int32_t r = BlockIndex(); r < rows; r += GridBlocks()) {
    const int32_t entry = args.ids == nullptr ? 0 : args.ids[r];
    if (entry < 0) continue;
    const T* from = args.table + int64_t{entry} * args.dim;
    T* to = args.out + int64_t{r} * args.dim;
    for (int32_t i = ThreadIndex(); i < args.dim; i += kThreads) {
      const float value = args.scale * Widen(from[i]);
      to[i] = Narrow<T>(args.accumulate ? Widen(to[i]) + value : value);
    }
  }
}

template <typename T>
__global__ void TakeInputKernel(InputArgs<T> args) {
  const int64_t elements = int64_t{*args.rows.count} * args.dim;
  const int64_t step = int64_t{GridBlocks()} * kThreads;
  for (int64_t i = int64_t{BlockIndex()} * kThreads + ThreadIndex(); i < elements; i += step) {
    args.out[i] = Narrow<T>(args.in[i]);
  }
}

template <typename T>
const Kernel kEmbed = KernelOf("Embed", &EmbedKernel<T>);
template <typename T>
const Kernel kTakeInput = KernelOf("TakeInput", &TakeInputKernel<T>);

}  // namespace

template <typename T>
void Embed(Stream& stream, const EmbedArgs<T>& args) {
  Launch(stream, kEmbed<T>, {PersistentBlocks(stream, args.rows.capacity, 16), kThreads}, args);
}

template void Embed(Stream&, const EmbedArgs<float>&);
template void Embed(Stream&, const EmbedArgs<BFloat16>&);

template <typename T>
void TakeInput(Stream& stream, const InputArgs<T>& args) {
  const int64_t blocks = (int64_t{args.rows.capacity} * args.dim + kThreads - 1) / kThreads;
  Launch(stream, kTakeInput<T>, {PersistentBlocks(stream, blocks, 16), kThreads}, args);
}

template void TakeInput(Stream&, const InputArgs<float>&);
template void TakeInput(Stream&, const InputArgs<BFloat16>&);

}  // namespace sluice::kernels::cuda
