#include "kernels/cuda/exchange.h"

#include "kernels/cuda/row_walk.h"
#include "kernels/cuda/vector.h"

namespace sluice::kernels::cuda {
namespace {

// A thread handles kWidth values at one place of a row.
template <typename T, int32_t kWidth>
__global__ void ExchangeKernel(OverRows<ExchangeArgs<T>> args) {
  const ExchangeArgs<T>& op = args.op;
  const RowWalk walk(args);
  const int32_t feature = walk.item * kWidth, rows = *op.rows.count;
  const int32_t width = op.tokens * op.block;
  if (feature >= width) return;
  const int32_t from = feature / op.block, within = feature % op.block;
  int32_t token = walk.row % op.tokens;
  const int32_t next = walk.step % op.tokens;
  for (int32_t r = walk.row; r < rows; r += walk.step) {
    const int32_t first = r - token;
    Pack<T, kWidth> values = {};
    if (first + from < rows) {
      const int64_t row = op.places[first + from];
      values = LoadWhole<Pack<T, kWidth>>(op.in + row * width + token * op.block + within);
    }
    StoreWhole(values, op.out + int64_t{op.places[r]} * width + feature);
    token += next;
    if (token >= op.tokens) token -= op.tokens;
  }
}

template <typename T, int32_t kWidth>
const Kernel kExchange = KernelOf(kWidth > 1 ? "Exchange" : "ExchangeUnaligned",
                                  &ExchangeKernel<T, kWidth>);

}  // namespace

template <typename T>
void Exchange(Stream& stream, const ExchangeArgs<T>& args) {
  LaunchOverElements<T>(stream, kExchange<T, kCopyElements<T>>, kExchange<T, 1>, args,
                        args.tokens * args.block,
                        RowsAligned(args.in, args.block) && RowsAligned(args.out, args.block));
}

template void Exchange(Stream&, const ExchangeArgs<float>&);
template void Exchange(Stream&, const ExchangeArgs<BFloat16>&);

}  // namespace sluice::kernels::cuda
