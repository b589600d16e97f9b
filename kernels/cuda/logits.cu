#include "kernels/cuda/logits.h"

#include <cmath>

#include "kernels/cuda/vector.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int32_t kThreads = 256;

// A block finishes columns [begin, end) of every `step`-th row from `first` on.
struct FinishArgs {
  LogitsArgs op;
  int32_t parts;  // blocks a row
  int32_t step;
  int32_t columns;  // of a block
};

template <int32_t kWidth>
__device__ void Cap(float* row, int32_t begin, int32_t end, float cap) {
  for (int32_t i = begin + ThreadIndex() * kWidth; i < end; i += kThreads * kWidth) {
    auto values = Load<kWidth>(row + i);
    SLUICE_UNROLL
    for (int32_t j = 0; j < kWidth; ++j) values.at[j] = cap * tanhf(values.at[j] / cap);
    Store(values, row + i);
  }
}

template <int32_t kWidth>
__global__ void FinishLogitsKernel(FinishArgs args) {
  const LogitsArgs& op = args.op;
  WaitForPrevious();
  const int32_t first = BlockIndex() / args.parts, rows = *op.rows.count;
  const int32_t begin = (BlockIndex() - first * args.parts) * args.columns;
  const int32_t end = op.n - begin < args.columns ? op.n : begin + args.columns;
  for (int32_t r = first; r < rows; r += args.step) {
    float* row = op.logits + r * op.stride;
    if (op.soft_cap != 0) {
      Cap<kWidth>(row, begin, end, op.soft_cap);
      SyncBlock();
    }
    for (int32_t i = op.begin[r] + ThreadIndex(); i < op.begin[r + 1]; i += kThreads) {
      const int32_t column = op.excluded[i];
      if (column >= begin && column < end) row[column] = -INFINITY;
    }
  }
}

template <int32_t kWidth>
const Kernel kFinishLogits = KernelOf(kWidth > 1 ? "FinishLogits" : "FinishLogitsUnaligned",
                                      &FinishLogitsKernel<kWidth>);

}  // namespace

void FinishLogits(Stream& stream, const LogitsArgs& args) {
  // Without a cap, only the list of excluded tokens is processed. Each block of a row does that.
  constexpr int32_t kColumns = 4 * kThreads * kCopyElements<float>;
  const int32_t columns = args.soft_cap != 0 && args.n > kColumns ? kColumns : args.n;
  const int32_t parts = (args.n + columns - 1) / columns;
  const int32_t blocks = PersistentBlocks(stream, int64_t{args.rows.capacity} * parts, 8);
  const int32_t step = blocks > parts ? blocks / parts : 1;
  const bool aligned = RowsAligned(args.logits, args.stride);
  Launch(stream, aligned ? kFinishLogits<kCopyElements<float>> : kFinishLogits<1>,
         {.blocks = parts * step, .threads = kThreads, .overlaps_previous = true},
         FinishArgs{args, parts, step, columns});
}

}  // namespace sluice::kernels::cuda
