#include "kernels/cuda/xsa.h"

#include "base/check.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/row_walk.h"
#include "kernels/cuda/vector.h"
#include "kernels/cuda/xsa_math.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int32_t kMaxDim = 256;
constexpr int32_t kEach = 8;  // features that a lane holds; a head has as few lanes as possible

// A team of kTeam lanes processes a query head of one row. A team that is not `active` only takes
// part in the reductions of its warp.
template <typename T, bool kAligned, int32_t kTeam>
__device__ void ExcludeFromHead(const ExcludeSelfArgs<T>& args, int64_t row, int32_t head,
                                int32_t kv_head, const Team& team, bool active) {
  using Features = RowPart<T, kEach, kAligned>;  // zeros beyond the head
  const auto dot = [](const Features& a, const Features& b) {
    float sum = 0;
    SLUICE_UNROLL
    for (int32_t i = 0; i < kEach; ++i) sum = fmaf(a.At(i), b.At(i), sum);
    return LaneReduce<kTeam>(sum, Plus());
  };
  const int32_t dim = args.head_dim;
  const int64_t place = row * args.q_heads + head;
  Features v(team, dim), y(team, dim);
  if (active) {
    v.Load(args.v + (row * args.kv_heads + kv_head) * dim);
    y.Load(args.y + place * dim);
  }
  const bool diagnostics = WantsDiagnostics(args.xsa);
  const XsaProducts products = {dot(y, v), dot(v, v), diagnostics ? dot(y, y) : 0.0f};
  if (!active) return;
  const float factor = XsaFactor(args.xsa, products, head);
  y.ForEach([&](T& element, int32_t i) { element = Narrow<T>(Widen(element) - factor * v.At(i)); });
  y.Store(args.out + place * dim);
  if (diagnostics && team.index == 0) WriteDiagnostics(args.xsa, products, place);
}

// The items of a row are the lanes of a team for each query head.
template <typename T, bool kAligned, int32_t kTeam>
__global__ void ExcludeSelfKernel(OverRows<ExcludeSelfArgs<T>> args) {
  const ExcludeSelfArgs<T>& op = args.op;
  const RowWalk walk(args);
  const int32_t head = walk.item / kTeam, kv_head = head / (op.q_heads / op.kv_heads);
  const bool active = head < op.q_heads;
  for (int32_t r = walk.row; r < *op.rows.count; r += walk.step) {
    ExcludeFromHead<T, kAligned, kTeam>(op, r, head, kv_head, {walk.item % kTeam, kTeam}, active);
  }
}

template <typename T, bool kAligned, int32_t kTeam>
const Kernel kExcludeSelf = KernelOf(kAligned ? "ExcludeSelf" : "ExcludeSelfUnaligned",
                                     &ExcludeSelfKernel<T, kAligned, kTeam>);

// Launches teams that are just wide enough for a head.
template <typename T, bool kAligned>
void LaunchTeams(Stream& stream, const ExcludeSelfArgs<T>& args) {
  const auto launch = [&](const Kernel& kernel, int32_t team) {
    LaunchOverRows(stream, kernel, args, args.q_heads * team);
  };
  if (args.head_dim <= 8 * kEach) return launch(kExcludeSelf<T, kAligned, 8>, 8);
  if (args.head_dim <= 16 * kEach) return launch(kExcludeSelf<T, kAligned, 16>, 16);
  launch(kExcludeSelf<T, kAligned, kWarp>, kWarp);
}

}  // namespace

template <typename T>
void ExcludeSelf(Stream& stream, const ExcludeSelfArgs<T>& args) {
  SLUICE_CHECK(args.xsa.form != XsaForm::kOff && args.q_heads % args.kv_heads == 0);
  SLUICE_CHECK(args.head_dim >= 1 && args.head_dim <= kMaxDim);
  const int32_t dim = args.head_dim;
  if (RowsAligned(args.y, dim) && RowsAligned(args.v, dim) && RowsAligned(args.out, dim)) {
    return LaunchTeams<T, true>(stream, args);
  }
  LaunchTeams<T, false>(stream, args);
}

template void ExcludeSelf(Stream&, const ExcludeSelfArgs<float>&);
template void ExcludeSelf(Stream&, const ExcludeSelfArgs<BFloat16>&);

}  // namespace sluice::kernels::cuda
