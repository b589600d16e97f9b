#include "kernels/cuda/rope.h"

#include "kernels/cuda/row_walk.h"
#include "kernels/cuda/vector.h"

namespace sluice::kernels::cuda {
namespace {

// Processes the item of a head that begins at feature `i`. `from` may be the row `to`. If not
// `rotates`, copies the features.
template <int32_t kWidth, typename T>
__device__ void RotateItem(const RopeArgs<T>& op, int32_t row, bool rotates, const T* from,
                           int32_t i, const KvRow<T>& to) {
  const int32_t half = op.rotary_dim / 2;
  if (i >= half || !rotates) {
    if (i < half) Copy<kWidth>(from + i, to.At(i));
    if (from != to.first) Copy<kWidth>(from + i + half, to.At(i + half));
    return;
  }
  const int64_t table = int64_t{op.positions[row]} * half + i;
  auto a = Load<kWidth>(from + i), b = Load<kWidth>(from + i + half);
  const auto cos = Load<kWidth>(op.cos + table), sin = Load<kWidth>(op.sin + table);
  SLUICE_UNROLL
  for (int32_t j = 0; j < kWidth; ++j) {
    const float x = a.at[j], y = b.at[j];
    a.at[j] = x * cos.at[j] - y * sin.at[j];
    b.at[j] = y * cos.at[j] + x * sin.at[j];
  }
  Store(a, to.At(i));
  Store(b, to.At(i + half));
}

// The items of a row: the items of its q heads, then of the k heads, then of the v heads. The items
// of a head: kWidth pairs of features (i, i + half) each, then kWidth unpaired features each.
template <typename T, int32_t kWidth>
__global__ void RopeAndStoreKernel(OverRows<RopeArgs<T>> args) {
  const RopeArgs<T>& op = args.op;
  const RowWalk walk(args);
  const int32_t dim = op.kv.head_dim, kv_heads = op.kv.kv_heads, rows = *op.rows.count;
  const int32_t items = (dim - op.rotary_dim / 2) / kWidth;
  const int32_t head = walk.item / items, i = (walk.item - head * items) * kWidth;
  if (head < op.q_heads) {
    T* q = op.q + int64_t{head} * dim;
    for (int32_t r = walk.row; r < rows; r += walk.step) {
      T* const at = q + r * (op.stride == 0 ? int64_t{op.q_heads} * dim : op.stride);
      RotateItem<kWidth>(op, r, true, at, i, KvRow<T>{at, 0});
    }
    return;
  }
  const bool is_k = head < op.q_heads + kv_heads;
  const int32_t kv_head = head - op.q_heads - (is_k ? 0 : kv_heads);
  if (kv_head >= kv_heads) return;
  const T* const from = (is_k ? op.k : op.v) + int64_t{kv_head} * dim;
  T* const to = is_k ? op.kv.k : op.kv.v;
  for (int32_t r = walk.row; r < rows; r += walk.step) {
    RotateItem<kWidth>(op, r, is_k,
                       from + r * (op.stride == 0 ? int64_t{kv_heads} * dim : op.stride), i,
                       op.kv.Row(to, op.kv_slots[r], kv_head));
  }
}

template <typename T, int32_t kWidth>
const Kernel kRopeAndStore = KernelOf(kWidth > 1 ? "RopeAndStore" : "RopeAndStoreUnaligned",
                                      &RopeAndStoreKernel<T, kWidth>);

template <typename T, int32_t kWidth>
void LaunchRope(Stream& stream, const RopeArgs<T>& args) {
  const int32_t items = (args.kv.head_dim - args.rotary_dim / 2) / kWidth;
  LaunchOverRows(stream, kRopeAndStore<T, kWidth>, args,
                 (args.q_heads + 2 * args.kv.kv_heads) * items);
}

}  // namespace

template <typename T>
void RopeAndStore(Stream& stream, const RopeArgs<T>& args) {
  const int32_t dim = args.kv.head_dim, half = args.rotary_dim / 2;
  const bool aligned =
      half % kCopyElements<T> == 0 && RowsAligned(args.cos, half) && RowsAligned(args.sin, half) &&
      RowsAligned(args.q, args.stride) && RowsAligned(args.q, dim) && RowsAligned(args.k, dim) &&
      RowsAligned(args.v, dim) && RowsAligned(args.kv.k, dim) && RowsAligned(args.kv.v, dim);
  if (aligned) return LaunchRope<T, kCopyElements<T>>(stream, args);
  LaunchRope<T, 1>(stream, args);
}

template void RopeAndStore(Stream&, const RopeArgs<float>&);
template void RopeAndStore(Stream&, const RopeArgs<BFloat16>&);

}  // namespace sluice::kernels::cuda
