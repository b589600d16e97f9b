#include "kernels/cuda/xsa.h"

#include "base/ceil_div.h"
#include "base/check.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/vector.h"
#include "kernels/cuda/xsa_math.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int32_t kMaxDim = 256;
constexpr int32_t kEach = 8;  // features that a lane holds; a head has as few lanes as possible

// A team of kTeam lanes processes a KV head of a row, with its query heads. The teams of a warp
// process neighbouring KV heads, of one row or of several. A team reads the next query head while
// it computes one, and the value of the next KV head while it computes the query heads of one. A
// team without a KV head only takes part in the reductions of its warp.
template <typename T, bool kAligned, int32_t kTeam>
__global__ void ExcludeSelfKernel(ExcludeSelfArgs<T> args) {
  using Features = RowPart<T, kEach, kAligned>;  // zeros beyond the head
  const auto dot = [](const Features& a, const Features& b) {
    float sum = 0;
    SLUICE_UNROLL
    for (int32_t i = 0; i < kEach; ++i) sum = fmaf(a.At(i), b.At(i), sum);
    return LaneReduce<kTeam>(sum, Plus());
  };
  WaitForPrevious();
  const int32_t heads = *args.rows.count * args.kv_heads, group = args.q_heads / args.kv_heads;
  const int32_t step = GridBlocks() * BlockThreads() / kTeam, dim = args.head_dim;
  const Team team = {Lane() % kTeam, kTeam};
  int32_t first = (BlockIndex() * BlockThreads() + Warp() * kWarp) / kTeam;  // of the warp
  int32_t kv_head = (first + Lane() / kTeam) % args.kv_heads;
  const int32_t advance = step % args.kv_heads;
  const bool diagnostics = WantsDiagnostics(args.xsa);
  Features v(team, dim), y(team, dim);
  const auto load = [&](Features& features, const T* from, int64_t row, bool active) {
    if (active) features.Load(from + row * dim);
  };
  const int32_t begin = first + Lane() / kTeam;
  load(v, args.v, begin, begin < heads);
  load(y, args.y, int64_t{begin} * group, begin < heads);
  for (; first < heads; first += step) {
    const int32_t index = first + Lane() / kTeam, following = index + step;
    const bool active = index < heads, follows = following < heads;
    Features next_v(team, dim);
    load(next_v, args.v, following, follows);
    const float square = dot(v, v);
    for (int32_t i = 0; i < group; ++i) {
      const int64_t place = int64_t{index} * group + i;
      const bool last = i + 1 == group;
      Features next(team, dim);
      load(next, args.y, last ? int64_t{following} * group : place + 1, last ? follows : active);
      const XsaProducts products = {dot(y, v), square, diagnostics ? dot(y, y) : 0.0f};
      if (active) {
        const float factor = XsaFactor(args.xsa, products, kv_head * group + i);
        y.ForEach(
            [&](T& element, int32_t j) { element = Narrow<T>(Widen(element) - factor * v.At(j)); });
        y.Store(args.out + place * dim);
        if (diagnostics && team.index == 0) WriteDiagnostics(args.xsa, products, place);
      }
      y = next;
    }
    v = next_v;
    kv_head += advance;
    if (kv_head >= args.kv_heads) kv_head -= args.kv_heads;
  }
}

template <typename T, bool kAligned, int32_t kTeam>
const Kernel kExcludeSelf = KernelOf(kAligned ? "ExcludeSelf" : "ExcludeSelfUnaligned",
                                     &ExcludeSelfKernel<T, kAligned, kTeam>);

// Launches teams that are just wide enough for a head. Blocks have one warp, or two if there are
// more warps than resident blocks.
template <typename T, bool kAligned>
void LaunchTeams(Stream& stream, const ExcludeSelfArgs<T>& args) {
  const auto launch = [&](const Kernel& kernel, int32_t team) {
    constexpr int32_t kResident = 32;  // blocks of a processor
    const int64_t lanes = int64_t{args.rows.capacity} * args.kv_heads * team;
    const int32_t warps = lanes > int64_t{stream.processors()} * kResident * kWarp ? 2 : 1;
    const int64_t blocks = CeilDiv(lanes, int64_t{warps} * kWarp);
    Launch(stream, kernel,
           {.blocks = PersistentBlocks(stream, blocks, kResident),
            .threads = warps * kWarp,
            .overlaps_previous = true},
           args);
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
