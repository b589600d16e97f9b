#include "kernels/cuda/embedding.h"

#include "kernels/cuda/row_walk.h"
#include "kernels/cuda/vector.h"

namespace sluice::kernels::cuda {
namespace {

template <typename T, int32_t kWidth>
__global__ void EmbedKernel(OverRows<EmbedArgs<T>> args) {
  const EmbedArgs<T>& op = args.op;
  const RowWalk walk(args);
  const int32_t column = walk.item * kWidth, rows = *op.rows.count;
  if (column >= op.dim) return;
  for (int32_t r = walk.row; r < rows; r += walk.step) {
    int32_t entry = op.ids == nullptr ? 0 : op.ids[r];
    if (entry < -1) entry = op.drawn[-2 - entry].token;
    if (entry < 0) continue;
    T* const to = op.out + int64_t{r} * op.dim + column;
    auto values = Load<kWidth>(op.table + int64_t{entry} * op.dim + column);
    SLUICE_UNROLL
    for (int32_t i = 0; i < kWidth; ++i) values.at[i] *= op.scale;
    if (op.accumulate) {
      const auto before = Load<kWidth>(to);
      SLUICE_UNROLL
      for (int32_t i = 0; i < kWidth; ++i) values.at[i] += before.at[i];
    }
    Store(values, to);
  }
}

template <typename T, int32_t kWidth>
__global__ void TakeInputKernel(OverRows<InputArgs<T>> args) {
  const InputArgs<T>& op = args.op;
  const RowWalk walk(args);
  const int32_t column = walk.item * kWidth, rows = *op.rows.count;
  if (column >= op.dim) return;
  for (int32_t r = walk.row; r < rows; r += walk.step) {
    const int64_t place = int64_t{r} * op.dim + column;
    Store(Load<kWidth>(op.in + place), op.out + place);
  }
}

template <typename T, int32_t kWidth>
const Kernel kEmbed = KernelOf(kWidth > 1 ? "Embed" : "EmbedUnaligned", &EmbedKernel<T, kWidth>);
template <typename T, int32_t kWidth>
const Kernel kTakeInput = KernelOf(kWidth > 1 ? "TakeInput" : "TakeInputUnaligned",
                                   &TakeInputKernel<T, kWidth>);

}  // namespace

template <typename T>
void Embed(Stream& stream, const EmbedArgs<T>& args) {
  LaunchOverElements<T>(stream, kEmbed<T, kCopyElements<T>>, kEmbed<T, 1>, args, args.dim,
                        RowsAligned(args.table, args.dim) && RowsAligned(args.out, args.dim));
}

template void Embed(Stream&, const EmbedArgs<float>&);
template void Embed(Stream&, const EmbedArgs<BFloat16>&);

template <typename T>
void TakeInput(Stream& stream, const InputArgs<T>& args) {
  LaunchOverElements<T>(stream, kTakeInput<T, kCopyElements<T>>, kTakeInput<T, 1>, args, args.dim,
                        RowsAligned(args.in, args.dim) && RowsAligned(args.out, args.dim));
}

template void TakeInput(Stream&, const InputArgs<float>&);
template void TakeInput(Stream&, const InputArgs<BFloat16>&);

}  // namespace sluice::kernels::cuda
