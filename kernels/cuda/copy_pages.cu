#include "kernels/cuda/copy_pages.h"

#include "kernels/cuda/kv_cache.h"
#include "kernels/cuda/row_walk.h"
#include "kernels/cuda/vector.h"

namespace sluice::kernels::cuda {
namespace {

// A thread copies kWidth features at one place of a page, for every walk.step-th page copy.
template <typename T, int32_t kWidth>
__global__ void CopyPagesKernel(OverRows<CopyPagesArgs<T>> args) {
  const CopyPagesArgs<T>& op = args.op;
  const RowWalk walk(args);
  const int32_t head = kPageTokens * op.head_dim / kWidth, heads = walk.item / head;
  if (heads >= op.matrices * op.kv_heads) return;
  const int32_t feature = (walk.item - heads * head) * kWidth, position = feature / op.head_dim;
  const int64_t page = int64_t{op.kv_heads} * kPageTokens * op.head_dim;
  const int32_t matrix = heads / op.kv_heads;
  T* const place = op.kv + matrix * op.pages * page +
                   int64_t{heads - matrix * op.kv_heads} * kPageTokens * op.head_dim + feature;
  const int32_t copies = *op.rows.count;
  for (int32_t i = walk.row; i < copies; i += walk.step) {
    const PageCopy copy = op.copies[i];
    if (position < copy.positions) Copy<kWidth>(place + copy.from * page, place + copy.to * page);
  }
}

template <typename T, int32_t kWidth>
const Kernel kCopyPages = KernelOf(kWidth > 1 ? "CopyPages" : "CopyPagesUnaligned",
                                   &CopyPagesKernel<T, kWidth>);

}  // namespace

template <typename T>
void CopyPages(Stream& stream, const CopyPagesArgs<T>& args) {
  LaunchOverElements<T>(stream, kCopyPages<T, kCopyElements<T>>, kCopyPages<T, 1>, args,
                        args.matrices * args.kv_heads * kPageTokens * args.head_dim,
                        RowsAligned(args.kv, args.head_dim));
}

template void CopyPages(Stream&, const CopyPagesArgs<float>&);
template void CopyPages(Stream&, const CopyPagesArgs<BFloat16>&);

}  // namespace sluice::kernels::cuda
