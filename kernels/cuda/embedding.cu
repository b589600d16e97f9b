#include "kernels/cuda/embedding.h"

#include "kernels/cuda/simt.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int32_t kThreads = 128;

template <typename T>
__global__ void EmbedKernel(EmbedArgs<T> args) {
  const int32_t rows = *args.rows.count;
  for (int32_t r = BlockIndex(); r < rows; r += GridBlocks()) {
    const T* from = args.table + int64_t{args.ids[r]} * args.dim;
    T* to = args.out + int64_t{r} * args.dim;
    for (int32_t i = ThreadIndex(); i < args.dim; i += kThreads) to[i] = from[i];
  }
}

template <typename T>
const Kernel kEmbed = KernelOf("Embed", &EmbedKernel<T>);

}  // namespace

template <typename T>
void Embed(Stream& stream, const EmbedArgs<T>& args) {
  Launch(stream, kEmbed<T>, {PersistentBlocks(stream, args.rows.capacity, 16), kThreads}, args);
}

template void Embed(Stream&, const EmbedArgs<float>&);
template void Embed(Stream&, const EmbedArgs<BFloat16>&);

}  // namespace sluice::kernels::cuda
