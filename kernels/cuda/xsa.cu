#include "kernels/cuda/xsa.h"

#include "base/check.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/xsa_math.h"
#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int32_t kThreads = 128, kWarps = kThreads / kWarp;
constexpr int32_t kMaxDim = 256, kEach = kMaxDim / kWarp;

// The features of a head: lane i holds those at i, i + 32, ...; zeros beyond the head.
struct Features {
  float value[kEach];
};

template <typename T>
__device__ Features LoadFeatures(const T* head, int32_t dim) {
  Features features;
  SLUICE_UNROLL
  for (int32_t i = 0; i < kEach; ++i) {
    const int32_t d = i * kWarp + Lane();
    features.value[i] = d < dim ? Widen(head[d]) : 0.0f;
  }
  return features;
}

__device__ float Dot(const Features& a, const Features& b) {
  float sum = 0;
  SLUICE_UNROLL
  for (int32_t i = 0; i < kEach; ++i) sum = fmaf(a.value[i], b.value[i], sum);
  return LaneReduce(sum, Plus());
}

// Processes all query heads of one row and KV head, by one warp.
template <typename T>
__device__ void ExcludeFromGroup(const ExcludeSelfArgs<T>& args, int64_t row, int32_t kv_head) {
  const int32_t dim = args.head_dim, group = args.q_heads / args.kv_heads;
  const Features v = LoadFeatures(args.v + (row * args.kv_heads + kv_head) * dim, dim);
  const float vv = Dot(v, v);
  const bool diagnostics = args.xsa.cos_sim != nullptr || args.xsa.proj_frac != nullptr;
  for (int32_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const int64_t place = row * args.q_heads + head;
    const Features y = LoadFeatures(args.y + place * dim, dim);
    const XsaProducts products = {Dot(y, v), vv, diagnostics ? Dot(y, y) : 0.0f};
    const float factor = XsaFactor(args.xsa, products, head);
    SLUICE_UNROLL
    for (int32_t i = 0; i < kEach; ++i) {
      const int32_t d = i * kWarp + Lane();
      if (d < dim) args.out[place * dim + d] = Narrow<T>(y.value[i] - factor * v.value[i]);
    }
    if (Lane() == 0) WriteDiagnostics(args.xsa, products, place);
  }
}

template <typename T>
__global__ void ExcludeSelfKernel(ExcludeSelfArgs<T> args) {
  const int64_t items = int64_t{*args.rows.count} * args.kv_heads;
  for (int64_t i = int64_t{BlockIndex()} * kWarps + Warp(); i < items; i += GridBlocks() * kWarps) {
    ExcludeFromGroup(args, i / args.kv_heads, static_cast<int32_t>(i % args.kv_heads));
  }
}

template <typename T>
const Kernel kExcludeSelf = KernelOf("ExcludeSelf", &ExcludeSelfKernel<T>);

}  // namespace

template <typename T>
void ExcludeSelf(Stream& stream, const ExcludeSelfArgs<T>& args) {
  SLUICE_CHECK(args.xsa.form != XsaForm::kOff && args.q_heads % args.kv_heads == 0);
  SLUICE_CHECK(args.head_dim >= 1 && args.head_dim <= kMaxDim);
  const int64_t blocks = (int64_t{args.rows.capacity} * args.kv_heads + kWarps - 1) / kWarps;
  Launch(stream, kExcludeSelf<T>, {PersistentBlocks(stream, blocks, 16), kThreads}, args);
}

template void ExcludeSelf(Stream&, const ExcludeSelfArgs<float>&);
template void ExcludeSelf(Stream&, const ExcludeSelfArgs<BFloat16>&);

}  // namespace sluice::kernels::cuda
