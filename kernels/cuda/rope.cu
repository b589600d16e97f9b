#include "kernels/cuda/rope.h"

#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int32_t kThreads = 128;

// The rotation of one row.
struct Rotation {
  const float* cos;
  const float* sin;
  int32_t half;
};

// Processes item `i` of a head: items are the pairs to rotate, then the features in no pair. `from`
// may be `to`.
template <typename T>
__device__ void RotateItem(const Rotation& rotation, const T* from, int32_t i, T* to) {
  const int32_t half = rotation.half;
  if (i >= half) {
    to[i + half] = from[i + half];
    return;
  }
  const float a = Widen(from[i]), b = Widen(from[i + half]);
  const float cos = rotation.cos[i], sin = rotation.sin[i];
  to[i] = Narrow<T>(a * cos - b * sin);
  to[i + half] = Narrow<T>(b * cos + a * sin);
}

template <typename T>
__global__ void RopeAndStoreKernel(RopeArgs<T> args) {
  const int32_t rows = *args.rows.count, dim = args.kv.head_dim, half = args.rotary_dim / 2;
  const int32_t items = dim - half, kv_heads = args.kv.kv_heads;
  for (int32_t r = BlockIndex(); r < rows; r += GridBlocks()) {
    const int64_t table = int64_t{args.positions[r]} * half;
    const Rotation rotation = {args.cos + table, args.sin + table, half};
    const int32_t slot = args.kv_slots[r];
    for (int32_t i = ThreadIndex(); i < args.q_heads * items; i += kThreads) {
      T* head = args.q + (int64_t{r} * args.q_heads + i / items) * dim;
      RotateItem(rotation, head, i % items, head);
    }
    for (int32_t i = ThreadIndex(); i < kv_heads * items; i += kThreads) {
      const T* head = args.k + (int64_t{r} * kv_heads + i / items) * dim;
      RotateItem(rotation, head, i % items, args.kv.k + args.kv.Offset(slot, i / items));
    }
    for (int32_t i = ThreadIndex(); i < kv_heads * dim; i += kThreads) {
      args.kv.v[args.kv.Offset(slot, i / dim) + i % dim] = args.v[int64_t{r} * kv_heads * dim + i];
    }
  }
}

template <typename T>
const Kernel kRopeAndStore = KernelOf("RopeAndStore", &RopeAndStoreKernel<T>);

}  // namespace

template <typename T>
void RopeAndStore(Stream& stream, const RopeArgs<T>& args) {
  Launch(stream, kRopeAndStore<T>, {PersistentBlocks(stream, args.rows.capacity, 16), kThreads},
         args);
}

template void RopeAndStore(Stream&, const RopeArgs<float>&);
template void RopeAndStore(Stream&, const RopeArgs<BFloat16>&);

}  // namespace sluice::kernels::cuda
