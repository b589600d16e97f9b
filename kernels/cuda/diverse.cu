#include "kernels/cuda/diverse.h"

#include <cmath>

#include "kernels/cuda/packed.h"
#include "kernels/cuda/select.h"
#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int32_t kThreads = 256;
static_assert(kMaxDiverse <= kThreads);

struct DiverseShared {
  double rest[kMaxDiversePool];     // -1 for a chosen candidate
  double inverse[kMaxDiversePool];  // 1 / length of each vector, or 0 if the length is 0
  double product[kMaxDiversePool];  // of each vector with the vector of the latest choice
  float scores[kMaxDiversePool];
  int32_t ids[kMaxDiversePool];
  int32_t chosen[kMaxDiverse];
  uint64_t reduce[kWarp];
};

// DiverseGain of kernels/diversity.h.
__device__ float GainOf(float score, double rest, double diversity) {
  if (!(score > -INFINITY)) return score;
  const double logarithm = log(rest > kMinRest ? rest : kMinRest);
  return static_cast<float>((1 - diversity) * score + diversity * logarithm);
}

// Returns the weight of a column at a depth.
template <typename T>
__device__ double WeightAt(const DiverseArgs<T>& args, int32_t depth, int32_t column) {
  if (!args.packed) return Widen(args.weight[int64_t{depth} * args.columns + column]);
  constexpr int32_t kDepth = kSliceDepth<T>;
  const int64_t slice = int64_t{column / kPanelColumns} * Slices<T>(args.k) + depth / kDepth;
  return Widen(args.weight[slice * kSliceElements<T> +
                           PlaceInSlice(T{}, depth % kDepth, column % kPanelColumns)]);
}

// Returns the inner product of two columns to every lane of a warp.
template <typename T>
__device__ double ProductOf(const DiverseArgs<T>& args, int32_t a, int32_t b) {
  double sum = 0;
  SLUICE_ROLLED
  for (int32_t depth = Lane(); depth < args.k; depth += kWarp) {
    sum += WeightAt(args, depth, a) * WeightAt(args, depth, b);
  }
  return LaneReduce(sum, Plus());
}

// Returns the candidate with the largest gain of all that are not chosen, the first of equal ones.
__device__ int32_t BestGain(const DiverseRequest& request, DiverseShared& shared) {
  uint64_t best = 0;
  for (int32_t i = ThreadIndex(); i < request.pool; i += kThreads) {
    if (shared.rest[i] < 0) continue;
    const uint64_t key = KeyOf(GainOf(shared.scores[i], shared.rest[i], request.diversity), i);
    best = Max()(best, key);
  }
  return IndexOf(BlockReduce(best, Max(), shared.reduce));
}

// Adds the row of candidate `j`, whose rest was `rest`, to the `rows` rows of the factor.
template <typename T>
__device__ void AddRow(const DiverseArgs<T>& args, const DiverseRequest& request, int32_t j,
                       double rest, int32_t rows, double* factor, DiverseShared& shared) {
  const int32_t pool = request.pool;
  for (int32_t i = Warp(); i < pool; i += kThreads / kWarp) {
    const double product = ProductOf(args, shared.ids[i], shared.ids[j]);
    if (Lane() == 0) shared.product[i] = product;
  }
  SyncBlock();
  const double scale = 1 / sqrt(rest);
  double* const row = factor + int64_t{rows} * pool;
  for (int32_t i = ThreadIndex(); i < pool; i += kThreads) {
    if (shared.rest[i] < 0) continue;
    const double cosine = shared.product[i] * shared.inverse[i] * shared.inverse[j];
    double value = (1 + cosine) / 2;
    for (int32_t r = 0; r < rows; ++r) {
      value -= factor[int64_t{r} * pool + j] * factor[int64_t{r} * pool + i];
    }
    value *= scale;
    row[i] = value;
    const double left = shared.rest[i] - value * value;
    shared.rest[i] = left > 0 ? left : 0;
  }
  SyncBlock();
}

template <typename T>
__device__ void DiversifyRow(const DiverseArgs<T>& args, int32_t r, DiverseShared& shared) {
  const DiverseRequest request = args.requests[r];
  const int32_t first = args.first == nullptr ? 0 : *args.first;
  if (!(request.diversity > 0) || args.outcomes[first + r].token < 0) return;
  const int64_t place = int64_t{r} * args.max_top;
  double* const factor = args.factors + r * DiverseFactor(args.max_top);
  for (int32_t i = ThreadIndex(); i < request.pool; i += kThreads) {
    shared.rest[i] = 1;
    shared.scores[i] = args.top_scores[place + i];
    shared.ids[i] = args.top_ids[place + i];
  }
  SyncBlock();
  for (int32_t i = Warp(); i < request.pool; i += kThreads / kWarp) {
    const double squares = ProductOf(args, shared.ids[i], shared.ids[i]);
    if (Lane() == 0) shared.inverse[i] = squares > 0 ? 1 / sqrt(squares) : 0;
  }
  int32_t rows = 0;
  for (int32_t step = 0; step < request.count; ++step) {
    SyncBlock();
    const int32_t j = BestGain(request, shared);
    const double rest = shared.rest[j];
    SyncBlock();
    if (ThreadIndex() == 0) {
      shared.chosen[step] = j;
      shared.rest[j] = -1;
    }
    SyncBlock();
    if (rest < kMinRest || step + 1 == request.count) continue;
    AddRow(args, request, j, rest, rows, factor, shared);
    ++rows;
  }
  SyncBlock();
  float logprob = 0;
  const int32_t t = ThreadIndex();
  if (t < request.count) logprob = args.top_logprobs[place + shared.chosen[t]];
  SyncBlock();
  if (t < request.count) {
    args.top_ids[place + t] = shared.ids[shared.chosen[t]];
    args.top_logprobs[place + t] = logprob;
    args.top_scores[place + t] = shared.scores[shared.chosen[t]];
  }
  SyncBlock();
}

template <typename T>
__global__ void __launch_bounds__(kThreads) DiversifyKernel(DiverseArgs<T> args) {
  auto& shared = SharedMemory<DiverseShared>();
  const int32_t rows = *args.rows.count;
  for (int32_t r = BlockIndex(); r < rows; r += GridBlocks()) DiversifyRow(args, r, shared);
}

template <typename T>
const Kernel kDiversify = KernelOf("Diversify", &DiversifyKernel<T>);

}  // namespace

template <typename T>
void Diversify(Stream& stream, const DiverseArgs<T>& args) {
  Launch(stream, kDiversify<T>,
         {PersistentBlocks(stream, args.rows.capacity, 2), kThreads, sizeof(DiverseShared)}, args);
}

template void Diversify(Stream&, const DiverseArgs<float>&);
template void Diversify(Stream&, const DiverseArgs<BFloat16>&);

}  // namespace sluice::kernels::cuda
