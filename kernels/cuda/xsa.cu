#include "kernels/cuda/xsa.h"

#include "base/check.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/row_walk.h"
#include "kernels/cuda/vector.h"
#include "kernels/cuda/xsa_math.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int32_t kMaxDim = 256, kEach = kMaxDim / kWarp;

// The features of a head that a lane holds; zeros beyond the head.
template <typename T, bool kAligned>
using Features = RowPart<T, kEach, kAligned>;

template <typename T, bool kAligned>
__device__ float Dot(const Features<T, kAligned>& a, const Features<T, kAligned>& b) {
  float sum = 0;
  SLUICE_UNROLL
  for (int32_t i = 0; i < kEach; ++i) sum = fmaf(a.At(i), b.At(i), sum);
  return LaneReduce(sum, Plus());
}

// Processes all query heads of one row and KV head, by one warp.
template <typename T, bool kAligned>
__device__ void ExcludeFromGroup(const ExcludeSelfArgs<T>& args, int64_t row, int32_t kv_head,
                                 int32_t group) {
  const int32_t dim = args.head_dim;
  Features<T, kAligned> v({Lane(), kWarp}, dim);
  v.Load(args.v + (row * args.kv_heads + kv_head) * dim);
  const float vv = Dot<T, kAligned>(v, v);
  const bool diagnostics = WantsDiagnostics(args.xsa);
  for (int32_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const int64_t place = row * args.q_heads + head;
    Features<T, kAligned> y({Lane(), kWarp}, dim);
    y.Load(args.y + place * dim);
    const XsaProducts products = {Dot<T, kAligned>(y, v), vv,
                                  diagnostics ? Dot<T, kAligned>(y, y) : 0.0f};
    const float factor = XsaFactor(args.xsa, products, head);
    y.ForEach(
        [&](T& element, int32_t i) { element = Narrow<T>(Widen(element) - factor * v.At(i)); });
    y.Store(args.out + place * dim);
    if (diagnostics && Lane() == 0) WriteDiagnostics(args.xsa, products, place);
  }
}

// The items of a row are the lanes of a warp for each KV head.
template <typename T, bool kAligned>
__global__ void ExcludeSelfKernel(OverRows<ExcludeSelfArgs<T>> args) {
  const ExcludeSelfArgs<T>& op = args.op;
  const RowWalk walk(args);
  const int32_t kv_head = walk.item / kWarp, group = op.q_heads / op.kv_heads;
  if (kv_head >= op.kv_heads) return;
  for (int32_t r = walk.row; r < *op.rows.count; r += walk.step) {
    ExcludeFromGroup<T, kAligned>(op, r, kv_head, group);
  }
}

template <typename T, bool kAligned>
const Kernel kExcludeSelf = KernelOf(kAligned ? "ExcludeSelf" : "ExcludeSelfUnaligned",
                                     &ExcludeSelfKernel<T, kAligned>);

}  // namespace

template <typename T>
void ExcludeSelf(Stream& stream, const ExcludeSelfArgs<T>& args) {
  SLUICE_CHECK(args.xsa.form != XsaForm::kOff && args.q_heads % args.kv_heads == 0);
  SLUICE_CHECK(args.head_dim >= 1 && args.head_dim <= kMaxDim);
  const int32_t dim = args.head_dim, items = args.kv_heads * kWarp;
  if (RowsAligned(args.y, dim) && RowsAligned(args.v, dim) && RowsAligned(args.out, dim)) {
    return LaunchOverRows(stream, kExcludeSelf<T, true>, args, items);
  }
  LaunchOverRows(stream, kExcludeSelf<T, false>, args, items);
}

template void ExcludeSelf(Stream&, const ExcludeSelfArgs<float>&);
template void ExcludeSelf(Stream&, const ExcludeSelfArgs<BFloat16>&);

}  // namespace sluice::kernels::cuda
