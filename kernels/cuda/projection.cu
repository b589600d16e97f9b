#include "kernels/cuda/projection.h"

#include <type_traits>

#include "base/check.h"
#include "kernels/cuda/activation_math.h"
#include "kernels/cuda/few_rows.h"
#include "kernels/cuda/product_loop.h"
#include "kernels/cuda/product_outputs.h"
#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {
namespace {

// Writes the outputs of a tile before any activation.
template <bool kAligned, typename T, typename Out, typename Operand, typename TileSums>
__device__ inline void WriteSums(const Place<T, Out, Operand, TileSums>& place,
                                 const TileSums& sums) {
  const ProjectionArgs<T, Out, Operand>& args = place.args;
  SLUICE_UNROLL
  for (int32_t r = 0; r < sums.kRowBlocks; ++r) {
    SLUICE_UNROLL
    for (int32_t i = 0; i < 2; ++i) {
      SLUICE_UNROLL
      for (int32_t c = 0; c < sums.kColumnBlocks; ++c) {
        const Floats<2> of_place = sums.At(r, i, c);
        place.At(r, i, c, [&](int32_t column, int64_t element, bool both) {
          Floats<2> values = place.template Output<kAligned>(of_place, r, i, column, both);
          if (args.accumulate) {
            const Floats<2> before = LoadTwo<kAligned>(args.out + element, both);
            for (int32_t j = 0; j < 2; ++j) values.at[j] += before.at[j];
          }
          StoreTwo<kAligned>(values, args.out + element, both);
        });
      }
    }
  }
}

// Applies the activation to the outputs that the calling thread has written. The loop is not
// unrolled, because the functions are long.
template <bool kAligned, typename T, typename Out, typename Operand, typename TileSums>
__device__ inline void ActivateWritten(const Place<T, Out, Operand, TileSums>& place) {
  const ProjectionArgs<T, Out, Operand>& args = place.args;
  constexpr int32_t kColumnBlocks = TileSums::kColumnBlocks;
  SLUICE_ROLLED
  for (int32_t n = 0; n < TileSums::kRowBlocks * 2 * kColumnBlocks; ++n) {
    place.At(n / kColumnBlocks / 2, n / kColumnBlocks % 2, n % kColumnBlocks,
             [&](int32_t, int64_t element, bool both) {
               Floats<2> values = LoadTwo<kAligned>(args.out + element, both);
               Floats<2> in = values;
               if (args.gate != nullptr) in = LoadTwo<kAligned>(args.gate + element, both);
               SLUICE_UNROLL
               for (int32_t j = 0; j < 2; ++j) {
                 const float activated = Apply(args.activation, in.at[j]);
                 values.at[j] = args.gate == nullptr ? activated : activated * values.at[j];
               }
               StoreTwo<kAligned>(values, args.out + element, both);
             });
  }
}

// Writes the outputs of a tile.
template <bool kAligned, typename T, typename Out, typename Operand, typename TileSums>
__device__ inline void Finish(const ProjectionArgs<T, Out, Operand>& args, const RowGroup& rows,
                              int32_t column, const TileSums& sums) {
  const Place<T, Out, Operand, TileSums> place = {args, rows, column};
  WriteSums<kAligned>(place, sums);
  if (args.activate) ActivateWritten<kAligned>(place);
}

template <typename T, typename Out, typename Operand, typename Tile, bool kAligned>
__global__ void __launch_bounds__(Tile::kThreads)
    ProjectionKernel(ProjectionArgs<T, Out, Operand> args) {
  auto& shared = SharedMemory<ProductShared<Operand, Tile>>();
  const Operands<Operand> operands = OperandsOf(args);
  MultiplyTiles<Tile, kAligned>(
      operands, shared, [&](const RowGroup& rows, int32_t column, const Sums<Operand, Tile>& sums) {
        Finish<kAligned>(args, rows, column, sums);
      });
}

template <typename T>
struct PlacedArgs {
  ProjectionArgs<T> product;
  MatrixTables matrices;
};

template <typename T, bool kAligned>
__global__ void __launch_bounds__(SmallTile::kThreads) PlacedKernel(PlacedArgs<T> args) {
  auto& shared = SharedMemory<ProductShared<T, SmallTile>>();
  const PlacedOperands<T> operands = {OperandsOf(args.product), args.matrices};
  MultiplyTiles<SmallTile, kAligned>(
      operands, shared, [&](const RowGroup& rows, int32_t column, const Sums<T, SmallTile>& sums) {
        Finish<kAligned>(args.product, rows, column, sums);
      });
}

template <typename T, typename Out, typename Operand>
struct FewRowsArgs {
  ProjectionArgs<T, Out, Operand> product;
  FewRowsStages stages;
};

template <typename Weights, typename T, typename Out, typename Operand>
__device__ inline void ProjectFewRows(const FewRowsArgs<T, Out, Operand>& args) {
  auto& shared = SharedMemory<FewRowsShared>();
  const Operands<Operand> operands = OperandsOf(args.product);
  MultiplyFewRows<Weights, 1, Operand>(operands, nullptr, args.stages, shared,
                                       [&](const RowGroup& rows, int32_t column, const auto& sums) {
                                         Finish<true>(args.product, rows, column, sums);
                                       });
}

template <typename T, typename Out, typename Operand>
__global__ void __launch_bounds__(FewRows::kMaxThreads)
    FewRowsKernel(FewRowsArgs<T, Out, Operand> args) {
  ProjectFewRows<PanelWeights<Operand>>(args);
}

__global__ void __launch_bounds__(FewRows::kMaxThreads)
    FewRowsOfGroupsKernel(FewRowsArgs<BFloat16, BFloat16, BFloat16> args) {
  ProjectFewRows<GroupWeights>(args);
}

template <typename T, typename Out, typename Operand>
const Kernel kProjection = KernelOf("Projection",
                                    &ProjectionKernel<T, Out, Operand, SmallTile, true>);
template <typename T, typename Out, typename Operand>
const Kernel kProjectionLarge = KernelOf("ProjectionLarge",
                                         &ProjectionKernel<T, Out, Operand, LargeTile, true>);
template <typename T>
const Kernel kProjectionPlaced = KernelOf("ProjectionPlaced", &PlacedKernel<T, true>);
template <typename T>
const Kernel kProjectionPlacedUnaligned = KernelOf("ProjectionPlacedUnaligned",
                                                   &PlacedKernel<T, false>);
template <typename T, typename Out, typename Operand>
const Kernel kProjectionFewRows = KernelOf("ProjectionFewRows", &FewRowsKernel<T, Out, Operand>);
const Kernel kProjectionFewRowsOfGroups =
    KernelOf("ProjectionFewRowsOfGroups", &FewRowsOfGroupsKernel);
template <typename T, typename Out, typename Operand>
const Kernel kProjectionUnaligned = KernelOf("ProjectionUnaligned",
                                             &ProjectionKernel<T, Out, Operand, SmallTile, false>);

// Launches `kernel` if it is faster than the other kernels. Returns whether it was launched.
template <typename Weights, typename T, typename Out, typename Operand>
bool LaunchFewRows(Stream& stream, const ProjectionArgs<T, Out, Operand>& args,
                   const Kernel& kernel) {
  const FewRowsLaunch few = FewRowsLaunchFor<Weights, 1>(stream, OperandsOf(args));
  if (few.shape.threads == 0) return false;
  Launch(stream, kernel, few.shape, FewRowsArgs<T, Out, Operand>{args, few.stages});
  return true;
}

}  // namespace

template <typename T, typename Out, typename Operand>
void Project(Stream& stream, const ProjectionArgs<T, Out, Operand>& args) {
  SLUICE_CHECK(args.k >= 1 && args.n >= 1);
  SLUICE_CHECK(RowsAligned(args.weight, kSliceElements<Operand>));
  if (!IsAligned(args)) {
    return LaunchProduct(stream, OperandsOf(args), kProjectionUnaligned<T, Out, Operand>, nullptr,
                         args);
  }
  const Kernel* large = nullptr;
  if constexpr (sizeof(Operand) < sizeof(float)) {
    if (LaunchFewRows<PanelWeights<Operand>>(stream, args, kProjectionFewRows<T, Out, Operand>))
      return;
    large = &kProjectionLarge<T, Out, Operand>;
  }
  LaunchProduct(stream, OperandsOf(args), kProjection<T, Out, Operand>, large, args);
}

template <typename T>
void ProjectPlaced(Stream& stream, const ProjectionArgs<T>& args, const MatrixTables& matrices) {
  SLUICE_CHECK(args.k >= 1 && args.n >= 1);
  const Kernel& kernel = IsAligned(args) ? kProjectionPlaced<T> : kProjectionPlacedUnaligned<T>;
  LaunchProduct(stream, OperandsOf(args), kernel, nullptr, PlacedArgs<T>{args, matrices});
}

bool ProjectFewRowsOfGroups(Stream& stream, const ProjectionArgs<BFloat16>& args) {
  SLUICE_CHECK(args.k >= 1 && args.n >= 1);
  SLUICE_CHECK(RowsAligned(args.weight, kGroupSliceElements));
  return IsAligned(args) && LaunchFewRows<GroupWeights>(stream, args, kProjectionFewRowsOfGroups);
}

template void Project(Stream&, const ProjectionArgs<float>&);
template void Project(Stream&, const ProjectionArgs<BFloat16>&);
template void Project(Stream&, const ProjectionArgs<BFloat16, float>&);
template void Project(Stream&, const ProjectionArgs<float, float, int8_t>&);
template void Project(Stream&, const ProjectionArgs<BFloat16, BFloat16, int8_t>&);
template void ProjectPlaced(Stream&, const ProjectionArgs<float>&, const MatrixTables&);
template void ProjectPlaced(Stream&, const ProjectionArgs<BFloat16>&, const MatrixTables&);

}  // namespace sluice::kernels::cuda
