#include "kernels/cuda/logits.h"

#include <cmath>

#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int32_t kThreads = 256;

__global__ void FinishLogitsKernel(LogitsArgs args) {
  const int32_t rows = *args.rows.count;
  for (int32_t r = BlockIndex(); r < rows; r += GridBlocks()) {
    float* row = args.logits + int64_t{r} * args.n;
    if (args.soft_cap != 0) {
      for (int32_t i = ThreadIndex(); i < args.n; i += kThreads) {
        row[i] = args.soft_cap * tanhf(row[i] / args.soft_cap);
      }
      SyncBlock();
    }
    for (int32_t i = args.begin[r] + ThreadIndex(); i < args.begin[r + 1]; i += kThreads) {
      row[args.excluded[i]] = -INFINITY;
    }
  }
}

const Kernel kFinishLogits = KernelOf("FinishLogits", &FinishLogitsKernel);

}  // namespace

void FinishLogits(Stream& stream, const LogitsArgs& args) {
  Launch(stream, kFinishLogits, {PersistentBlocks(stream, args.rows.capacity, 8), kThreads}, args);
}

}  // namespace sluice::kernels::cuda
