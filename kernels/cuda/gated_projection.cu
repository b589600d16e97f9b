#include "kernels/cuda/gated_projection.h"

#include "base/check.h"
#include "kernels/cuda/activation_math.h"
#include "kernels/cuda/few_rows.h"
#include "kernels/cuda/product_outputs.h"
#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {
namespace {

template <typename T, typename Operand>
struct GatedArgs {
  ProjectionArgs<T, T, Operand> gate, up;
  FewRowsStages stages;
};

// Returns the values after rounding to T.
template <typename T>
__device__ inline Floats<2> Rounded(Floats<2> values) {
  SLUICE_UNROLL
  for (int32_t j = 0; j < 2; ++j) values.at[j] = Widen(Narrow<T>(values.at[j]));
  return values;
}

// Writes the outputs of a tile. The loop is not unrolled, because activations are long. It always
// uses the first pair of sums, so that the sums stay in registers.
template <typename T, typename Operand, typename TileSums>
__device__ inline void FinishGated(const GatedArgs<T, Operand>& args, const RowGroup& rows,
                                   int32_t column, const TileSums& sums) {
  constexpr int32_t kCount = TileSums::kRowBlocks * 2;
  static_assert(TileSums::kColumnBlocks == 1);
  const Place<T, T, Operand, TileSums> gate = {args.gate, rows, column};
  const Place<T, T, Operand, TileSums> up = {args.up, rows, column};
  Floats<2> gates[kCount], ups[kCount];
  SLUICE_UNROLL
  for (int32_t n = 0; n < kCount; ++n) {
    gates[n] = sums.At(n / 2, n % 2, 0, 0);
    ups[n] = sums.At(n / 2, n % 2, 0, 1);
  }
  SLUICE_ROLLED
  for (int32_t n = 0; n < kCount; ++n) {
    const int32_t r = n / 2, i = n % 2;
    up.At(r, i, 0, [&](int32_t first, int64_t element, bool both) {
      const auto in = Rounded<T>(gate.template Output<true>(gates[0], r, i, first, both));
      Floats<2> values = Rounded<T>(up.template Output<true>(ups[0], r, i, first, both));
      SLUICE_UNROLL
      for (int32_t j = 0; j < 2; ++j) {
        values.at[j] = Apply(args.up.activation, in.at[j]) * values.at[j];
      }
      StoreTwo<true>(values, args.up.out + element, both);
    });
    SLUICE_UNROLL
    for (int32_t next = 1; next < kCount; ++next) {
      gates[next - 1] = gates[next];
      ups[next - 1] = ups[next];
    }
  }
}

template <typename Weights, typename T, typename Operand>
__device__ inline void ProjectGatedFewRows(const GatedArgs<T, Operand>& args) {
  auto& shared = SharedMemory<FewRowsShared>();
  const Operands<Operand> operands = OperandsOf(args.gate);
  MultiplyFewRows<Weights, 2, Operand>(operands, args.up.weight, args.stages, shared,
                                       [&](const RowGroup& rows, int32_t column, const auto& sums) {
                                         FinishGated(args, rows, column, sums);
                                       });
}

template <typename T, typename Operand>
__global__ void __launch_bounds__(FewRows::kMaxThreads)
    GatedFewRowsKernel(GatedArgs<T, Operand> args) {
  ProjectGatedFewRows<PanelWeights<Operand>>(args);
}

__global__ void __launch_bounds__(FewRows::kMaxThreads)
    GatedFewRowsOfGroupsKernel(GatedArgs<BFloat16, BFloat16> args) {
  ProjectGatedFewRows<GroupWeights>(args);
}

template <typename T, typename Operand>
const Kernel kGatedFewRows = KernelOf("GatedFewRows", &GatedFewRowsKernel<T, Operand>);
const Kernel kGatedFewRowsOfGroups = KernelOf("GatedFewRowsOfGroups", &GatedFewRowsOfGroupsKernel);

template <typename Weights, typename T, typename Operand>
bool LaunchGated(Stream& stream, const ProjectionArgs<T, T, Operand>& gate,
                 const ProjectionArgs<T, T, Operand>& up, const Kernel& kernel) {
  SLUICE_CHECK(gate.k >= 1 && gate.n >= 1 && gate.k == up.k && gate.n == up.n && gate.x == up.x);
  SLUICE_CHECK(gate.tiles.tiles == up.tiles.tiles && gate.row_scales == up.row_scales);
  SLUICE_CHECK(!gate.accumulate && !up.accumulate);
  SLUICE_CHECK(!gate.activate && up.activate && up.gate == gate.out);
  if (!IsAligned(gate) || !IsAligned(up)) return false;
  const FewRowsLaunch few = FewRowsLaunchFor<Weights, 2>(stream, OperandsOf(gate));
  if (few.shape.threads == 0) return false;
  Launch(stream, kernel, few.shape, GatedArgs<T, Operand>{gate, up, few.stages});
  return true;
}

}  // namespace

template <typename T, typename Operand>
bool ProjectGated(Stream& stream, const ProjectionArgs<T, T, Operand>& gate,
                  const ProjectionArgs<T, T, Operand>& up) {
  if constexpr (sizeof(Operand) < sizeof(float)) {
    SLUICE_CHECK(RowsAligned(gate.weight, kSliceElements<Operand>));
    SLUICE_CHECK(RowsAligned(up.weight, kSliceElements<Operand>));
    return LaunchGated<PanelWeights<Operand>>(stream, gate, up, kGatedFewRows<T, Operand>);
  } else {
    return false;
  }
}

bool ProjectGatedOfGroups(Stream& stream, const ProjectionArgs<BFloat16>& gate,
                          const ProjectionArgs<BFloat16>& up) {
  SLUICE_CHECK(RowsAligned(gate.weight, kGroupSliceElements));
  SLUICE_CHECK(RowsAligned(up.weight, kGroupSliceElements));
  return LaunchGated<GroupWeights>(stream, gate, up, kGatedFewRowsOfGroups);
}

template bool ProjectGated(Stream&, const ProjectionArgs<float>&, const ProjectionArgs<float>&);
template bool ProjectGated(Stream&, const ProjectionArgs<BFloat16>&,
                           const ProjectionArgs<BFloat16>&);
template bool ProjectGated(Stream&, const ProjectionArgs<float, float, int8_t>&,
                           const ProjectionArgs<float, float, int8_t>&);
template bool ProjectGated(Stream&, const ProjectionArgs<BFloat16, BFloat16, int8_t>&,
                           const ProjectionArgs<BFloat16, BFloat16, int8_t>&);

}  // namespace sluice::kernels::cuda
