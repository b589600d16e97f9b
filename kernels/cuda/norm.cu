#include "kernels/cuda/norm.h"

#include <cmath>

#include "base/check.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/vector.h"

namespace sluice::kernels::cuda {
namespace {

// A warp normalises a short row; each lane holds 8 elements. A block normalises a longer row; each
// thread holds 16 elements. Elements beyond 8,192 are read again in each pass.
constexpr int32_t kWarpHeld = 8, kMaxWarpDim = kWarp * kWarpHeld, kWarps = 4;
constexpr int32_t kBlockHeld = 16, kMaxThreads = 512;
static_assert(kMaxStridedDim <= kMaxWarpDim);

struct NormShared {
  float reduce[kWarp];
};

// Returns the sum over the threads of the warp or, with `shared`, of the block.
__device__ float SumOfTeam(float sum, NormShared* shared) {
  if (shared == nullptr) return LaneReduce(sum, Plus());
  return BlockReduce(sum, Plus(), shared->reduce);
}

// The threads that normalise a row. The first kHeld elements of each thread stay in registers from
// pass to pass. Their weights are read at the same time, before the sums are known.
template <typename T, bool kCentred, bool kAligned, int32_t kHeld>
class NormTeam {
 public:
  __device__ NormTeam(const NormArgs<T>& args, const Team& team, NormShared* shared)
      : args_(args), team_(team), shared_(shared) {}

  // Normalises the row that begins at `offset`.
  __device__ void Normalise(int64_t offset) const {
    const T* row = args_.x + offset;
    Part<kHeld> held(team_, args_.dim);
    held.Load(row);
    const auto weight = WeightAt<kHeld>(0);
    if (args_.residual != nullptr) {
      AddResidual(offset, held);
      ForEachOther(row, [&](Rest& part, int32_t) { AddResidual(offset, part); });
      row = args_.sum + offset;
    }
    float mean = 0;
    if (kCentred) {
      mean = SumOver(row, held, [](float s) { return s; }) / static_cast<float>(args_.dim);
    }
    const float squares = SumOver(row, held, [mean](float s) { return (s - mean) * (s - mean); });
    const float scale = 1.0f / sqrtf(squares / static_cast<float>(args_.dim) + args_.eps);
    Write(offset, held, weight, 0, mean, scale);
    ForEachOther(row, [&](Rest& part, int32_t first) {
      Write(offset, part, WeightAt<kCopyElements<T>>(first), first, mean, scale);
    });
  }

 private:
  template <int32_t kElements>
  using Part = RowPart<T, kElements, kAligned>;
  using Rest = Part<kCopyElements<T>>;

  // Returns the weights of the part from `first` on.
  template <int32_t kElements>
  __device__ Part<kElements> WeightAt(int32_t first) const {
    Part<kElements> weight(team_, args_.dim, 1, first);
    if (args_.weight != nullptr) weight.Load(args_.weight);
    return weight;
  }

  // Reads the elements that are not held, one pack at a time, and calls f(part, first) with the
  // parts of the row from `first` on. A warp holds all elements.
  template <typename Function>
  __device__ void ForEachOther(const T* row, Function f) const {
    if constexpr (kHeld != kWarpHeld) {
      const int32_t step = team_.size * kCopyElements<T>;
      SLUICE_ROLLED
      for (int32_t first = team_.size * kHeld; first < args_.dim; first += step) {
        Rest part(team_, args_.dim, 0, first);
        part.Load(row);
        f(part, first);
      }
    }
  }

  // Adds the residual to the part and writes the sum. Each thread writes the elements that it reads
  // again later.
  template <int32_t kElements>
  __device__ void AddResidual(int64_t offset, Part<kElements>& part) const {
    Part<kElements> residual = part;
    residual.Load(args_.residual + offset);
    part.ForEach(
        [&](T& element, int32_t i) { element = Narrow<T>(Widen(element) + residual.At(i)); });
    part.Store(args_.sum + offset);
  }

  // Returns the sum over a row of f(element).
  template <typename Function>
  __device__ float SumOver(const T* row, Part<kHeld>& held, Function f) const {
    float sum = 0;
    const auto add = [&sum, f](T element, int32_t) { sum += f(Widen(element)); };
    held.ForEach(add);
    ForEachOther(row, [&](Rest& part, int32_t) { part.ForEach(add); });
    return SumOfTeam(sum, shared_);
  }

  template <int32_t kElements>
  __device__ void Write(int64_t offset, Part<kElements>& part, const Part<kElements>& weight,
                        int32_t first, float mean, float scale) const {
    const bool has_bias = kCentred && args_.bias != nullptr;
    Part<kElements> bias(team_, args_.dim, 0, first);
    if (has_bias) bias.Load(args_.bias);
    part.ForEach([&](T& element, int32_t i) {
      float value = (Widen(element) - mean) * scale * (args_.weight_offset + weight.At(i));
      if (has_bias) value += bias.At(i);
      element = Narrow<T>(value * args_.scale);
    });
    part.Store(args_.out + offset);
  }

  const NormArgs<T>& args_;
  const Team team_;
  NormShared* const shared_;  // nullptr if the team is a warp
};

template <typename T, bool kCentred, bool kAligned>
__global__ void __launch_bounds__(kMaxThreads) BlockNormKernel(NormArgs<T> args) {
  const NormTeam<T, kCentred, kAligned, kBlockHeld> team(args, {ThreadIndex(), BlockThreads()},
                                                         &SharedMemory<NormShared>());
  WaitForPrevious();
  const int32_t rows = *args.rows.count * args.groups;
  for (int32_t r = BlockIndex(); r < rows; r += GridBlocks()) {
    team.Normalise(int64_t{r} * args.dim);
  }
}

// Visits the groups of all rows; takes every `step`-th group.
class GroupWalk {
 public:
  template <typename T>
  __device__ GroupWalk(const NormArgs<T>& args, int32_t first, int32_t step)
      : dim_(args.dim),
        groups_(args.groups),
        stride_(args.stride == 0 ? int64_t{args.groups} * args.dim : args.stride),
        row_(first / args.groups),
        group_(first - row_ * args.groups),
        rows_a_step_(step / args.groups),
        groups_a_step_(step - rows_a_step_ * args.groups) {}

  __device__ int32_t row() const { return row_; }
  __device__ int64_t offset() const { return row_ * stride_ + int64_t{group_} * dim_; }
  __device__ void Next() {
    row_ += rows_a_step_;
    group_ += groups_a_step_;
    if (group_ < groups_) return;
    group_ -= groups_;
    ++row_;
  }

 private:
  const int32_t dim_, groups_;
  const int64_t stride_;
  int32_t row_, group_;
  const int32_t rows_a_step_, groups_a_step_;
};

template <typename T, bool kCentred, bool kAligned>
__global__ void __launch_bounds__(kWarps* kWarp) WarpNormKernel(NormArgs<T> args) {
  const NormTeam<T, kCentred, kAligned, kWarpHeld> team(args, {Lane(), kWarp}, nullptr);
  WaitForPrevious();
  const int32_t rows = *args.rows.count;
  GroupWalk walk(args, BlockIndex() * kWarps + Warp(), GridBlocks() * kWarps);
  for (; walk.row() < rows; walk.Next()) team.Normalise(walk.offset());
}

template <typename T, bool kCentred, bool kAligned>
const Kernel kBlockNorm = KernelOf(kCentred ? "LayerNorm" : "RmsNorm",
                                   &BlockNormKernel<T, kCentred, kAligned>);
template <typename T, bool kCentred, bool kAligned>
const Kernel kWarpNorm = KernelOf(kCentred ? "LayerNormByWarp" : "RmsNormByWarp",
                                  &WarpNormKernel<T, kCentred, kAligned>);

template <typename T, bool kCentred, bool kAligned>
void LaunchNorm(Stream& stream, const NormArgs<T>& args) {
  const int64_t rows = int64_t{args.rows.capacity} * args.groups;
  if (args.dim <= kMaxWarpDim) {
    const int32_t blocks = PersistentBlocks(stream, (rows + kWarps - 1) / kWarps, 16);
    return Launch(stream, kWarpNorm<T, kCentred, kAligned>,
                  {.blocks = blocks, .threads = kWarps * kWarp, .overlaps_previous = true}, args);
  }
  constexpr int32_t kHeldByWarp = kWarp * kBlockHeld, kResidentThreads = 1024;
  const int32_t wanted = (args.dim + kHeldByWarp - 1) / kHeldByWarp * kWarp;
  const int32_t threads = wanted < kMaxThreads ? wanted : kMaxThreads;
  Launch(stream, kBlockNorm<T, kCentred, kAligned>,
         {.blocks = PersistentBlocks(stream, rows, kResidentThreads / threads),
          .threads = threads,
          .shared_bytes = sizeof(NormShared),
          .overlaps_previous = true},
         args);
}

template <bool kCentred, typename T>
void Norm(Stream& stream, const NormArgs<T>& args) {
  SLUICE_CHECK((args.residual == nullptr) == (args.sum == nullptr));
  SLUICE_CHECK(args.stride == 0 || (args.residual == nullptr && args.dim <= kMaxStridedDim));
  const int32_t dim = args.dim;
  const bool aligned = RowsAligned(args.x, dim) && RowsAligned(args.residual, dim) &&
                       RowsAligned(args.sum, dim) && RowsAligned(args.weight, dim) &&
                       RowsAligned(args.bias, dim) && RowsAligned(args.out, dim) &&
                       RowsAligned(args.x, args.stride);
  if (aligned) return LaunchNorm<T, kCentred, true>(stream, args);
  LaunchNorm<T, kCentred, false>(stream, args);
}

}  // namespace

template <typename T>
void RmsNorm(Stream& stream, const NormArgs<T>& args) {
  SLUICE_CHECK(args.bias == nullptr);
  Norm<false>(stream, args);
}
template <typename T>
void LayerNorm(Stream& stream, const NormArgs<T>& args) {
  Norm<true>(stream, args);
}

template void RmsNorm(Stream&, const NormArgs<float>&);
template void RmsNorm(Stream&, const NormArgs<BFloat16>&);
template void LayerNorm(Stream&, const NormArgs<float>&);
template void LayerNorm(Stream&, const NormArgs<BFloat16>&);

}  // namespace sluice::kernels::cuda
