#include "kernels/cuda/top_k.h"

#include "kernels/cuda/select.h"
#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {
namespace {

__global__ void __launch_bounds__(kSelectThreads) TopKKernel(TopKArgs args) {
  auto& shared = SharedMemory<SelectShared>();
  const TopKSizes sizes = *args.sizes;
  for (int32_t r = BlockIndex(); r < sizes.rows; r += GridBlocks()) {
    const Row row = {args.x + r * args.row_stride, sizes.n};
    const int64_t place = static_cast<int64_t>(r) * args.max_k;
    const Row largest = Largest(row, sizes.k, args.scratch + place, shared);
    for (int32_t i = ThreadIndex(); i < largest.n; i += kSelectThreads) {
      const int32_t index = IndexOf(largest.keys[i]);
      args.ids[place + i] = index;
      args.values[place + i] = row.x[index];
    }
  }
}

const Kernel kTopK = KernelOf("TopK", &TopKKernel);

}  // namespace

void TopK(Stream& stream, const TopKArgs& args) {
  Launch(stream, kTopK,
         {PersistentBlocks(stream, args.max_rows, 4), kSelectThreads, sizeof(SelectShared)}, args);
}

}  // namespace sluice::kernels::cuda
