#include "kernels/cuda/route.h"

#include <cmath>

#include "base/check.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/row_walk.h"
#include "kernels/cuda/select.h"
#include "kernels/cuda/vector.h"

namespace sluice::kernels::cuda {
namespace {

// Returns the least of the keys (select.h) of the `chosen` largest logits of a row. *first becomes
// the index of the largest logit.
__device__ uint64_t LeastChosen(const float* logits, int32_t experts, int32_t chosen,
                                int32_t* first) {
  uint64_t least = ~uint64_t{0};
  for (int32_t i = 0; i < chosen; ++i) {
    uint64_t next = 0;  // below all keys
    for (int32_t e = Lane(); e < experts; e += kWarp) {
      const uint64_t key = KeyOf(logits[e], e);
      if (key < least && key > next) next = key;
    }
    least = LaneReduce(next, Max());
    if (i == 0) *first = IndexOf(least);
  }
  return least;
}

// Returns the number of set bits of lanes before this one.
__device__ inline int32_t LanesBefore(uint32_t lanes) {
  return CountBits(lanes & ((1u << Lane()) - 1));
}

// A warp chooses the experts of a row. Writes their indices and weights.
__global__ void ChooseExpertsKernel(OverRows<RouteArgs> args) {
  const RouteArgs& op = args.op;
  const Routes& routes = op.routes;
  const RowWalk walk(args);
  const int32_t rows = *op.rows.count, experts = routes.experts;
  for (int32_t r = walk.row; r < rows; r += walk.step) {
    const float* const logits = op.logits + int64_t{r} * experts;
    int32_t first = 0;
    const uint64_t least = LeastChosen(logits, experts, routes.chosen, &first);
    const float largest = logits[first];
    const auto is_chosen = [&](int32_t e) { return KeyOf(logits[e], e) >= least; };
    float sum = 0;
    for (int32_t e = Lane(); e < experts; e += kWarp) {
      const bool counts = op.softmax == RouteSoftmax::kOfAll || is_chosen(e);
      if (counts) sum += expf(logits[e] - largest);
    }
    sum = LaneReduce(sum, Plus());
    int32_t at = r * routes.chosen;
    for (int32_t begin = 0; begin < experts; begin += kWarp) {
      const int32_t e = begin + Lane();
      const bool mine = e < experts && is_chosen(e);
      const uint32_t lanes = Ballot(mine);
      if (mine) {
        const int32_t place = at + LanesBefore(lanes);
        routes.choices[place] = e;
        routes.weights[place] = expf(logits[e] - largest) / sum;
      }
      at += CountBits(lanes);
    }
  }
}

struct GroupShared {
  int32_t scratch[kWarp];
  int32_t copies[kMaxExperts];  // of each expert
};

__device__ inline int32_t TilesOf(int32_t copies) { return (copies + kTileRows - 1) / kTileRows; }

// Writes the places of the copies of an expert, from `place` to `end`, in ascending order of rows.
// A warp takes kEach times 32 neighbouring choices at a time.
__device__ void PlaceCopies(const Routes& routes, int32_t copies, int32_t expert, int32_t place,
                            int32_t end, int32_t (&scratch)[kWarp]) {
  constexpr int32_t kEach = 8;
  int32_t first = Warp() * kEach * kWarp + Lane();
  for (; place < end; first += BlockThreads() * kEach) {
    uint32_t lanes[kEach];  // with choices of the expert
    int32_t of_warp = 0, total;
    SLUICE_UNROLL
    for (int32_t i = 0; i < kEach; ++i) {
      const int32_t at = first + i * kWarp;
      lanes[i] = Ballot(at < copies && routes.choices[at] == expert);
      of_warp += CountBits(lanes[i]);
    }
    // The last lane adds the sum of its warp, so each lane gets the sum of the warps before it.
    int32_t next = place + BlockSumBefore(Lane() == kWarp - 1 ? of_warp : 0, scratch, &total);
    SLUICE_UNROLL
    for (int32_t i = 0; i < kEach; ++i) {
      if ((lanes[i] >> Lane() & 1) != 0) {
        routes.places[first + i * kWarp] = next + LanesBefore(lanes[i]);
      }
      next += CountBits(lanes[i]);
    }
    place += total;
  }
}

// A block makes the places and tiles of the copies of an expert. It counts the copies of all
// experts first; the order of these additions has no effect on the counts.
__global__ void GroupCopiesKernel(RouteArgs args) {
  const Routes& routes = args.routes;
  auto& shared = SharedMemory<GroupShared>();
  WaitForPrevious();
  const int32_t copies = *args.rows.count * routes.chosen, experts = routes.experts;
  for (int32_t e = ThreadIndex(); e < experts; e += BlockThreads()) shared.copies[e] = 0;
  SyncBlock();
  for (int32_t i = ThreadIndex(); i < copies; i += BlockThreads()) {
    AtomicAdd(&shared.copies[routes.choices[i]], 1);
  }
  SyncBlock();
  for (int32_t expert = BlockIndex(); expert < experts; expert += GridBlocks()) {
    int32_t copies_before = 0, tiles_before = 0;
    for (int32_t e = ThreadIndex(); e < expert; e += BlockThreads()) {
      copies_before += shared.copies[e];
      tiles_before += TilesOf(shared.copies[e]);
    }
    const int32_t first = BlockReduce(copies_before, Plus(), shared.scratch);
    const int32_t first_tile = BlockReduce(tiles_before, Plus(), shared.scratch);
    const int32_t count = shared.copies[expert], tiles = TilesOf(count);
    for (int32_t t = ThreadIndex(); t < tiles; t += BlockThreads()) {
      const int32_t left = count - t * kTileRows;
      routes.tiles[first_tile + t] = {expert, first + t * kTileRows,
                                      left < kTileRows ? left : kTileRows};
    }
    if (expert == experts - 1 && ThreadIndex() == 0) *routes.counts = {copies, first_tile + tiles};
    PlaceCopies(routes, copies, expert, first, first + count, shared.scratch);
  }
}

// A thread copies kWidth values of a row.
template <typename T, int32_t kWidth>
__global__ void CopyToPlacesKernel(OverRows<CopyToPlacesArgs<T>> args) {
  const CopyToPlacesArgs<T>& op = args.op;
  const RowWalk walk(args);
  const int32_t feature = walk.item * kWidth, rows = *op.rows.count, chosen = op.routes.chosen;
  if (feature >= op.dim) return;
  for (int32_t r = walk.row; r < rows; r += walk.step) {
    const auto values = LoadWhole<Pack<T, kWidth>>(op.x + int64_t{r} * op.dim + feature);
    for (int32_t i = r * chosen; i < (r + 1) * chosen; ++i) {
      StoreWhole(values, op.out + int64_t{op.routes.places[i]} * op.dim + feature);
    }
  }
}

// A thread sums kWidth values of a row.
template <typename T, int32_t kWidth>
__global__ void CombineKernel(OverRows<CombineArgs<T>> args) {
  const CombineArgs<T>& op = args.op;
  const RowWalk walk(args);
  const int32_t feature = walk.item * kWidth, rows = *op.rows.count, chosen = op.routes.chosen;
  if (feature >= op.dim) return;
  Floats<kWidth> bias = {};
  if (op.bias != nullptr) bias = Load<kWidth>(op.bias + feature);
  for (int32_t r = walk.row; r < rows; r += walk.step) {
    Floats<kWidth> sum = {};
    for (int32_t i = r * chosen; i < (r + 1) * chosen; ++i) {
      const float weight = op.routes.weights[i];
      const auto x = Load<kWidth>(op.x + int64_t{op.routes.places[i]} * op.dim + feature);
      SLUICE_UNROLL
      for (int32_t j = 0; j < kWidth; ++j) sum.at[j] += weight * x.at[j];
    }
    T* const out = op.out + int64_t{r} * op.dim + feature;
    SLUICE_UNROLL
    for (int32_t j = 0; j < kWidth; ++j) sum.at[j] += bias.at[j];
    if (op.accumulate) {
      const auto before = Load<kWidth>(out);
      SLUICE_UNROLL
      for (int32_t j = 0; j < kWidth; ++j) sum.at[j] += before.at[j];
    }
    Store(sum, out);
  }
}

const Kernel kChooseExperts = KernelOf("ChooseExperts", &ChooseExpertsKernel);
const Kernel kGroupCopies = KernelOf("GroupCopies", &GroupCopiesKernel);
template <typename T, int32_t kWidth>
const Kernel kCopyToPlaces = KernelOf(kWidth > 1 ? "CopyToPlaces" : "CopyToPlacesUnaligned",
                                      &CopyToPlacesKernel<T, kWidth>);
template <typename T, int32_t kWidth>
const Kernel kCombine = KernelOf(kWidth > 1 ? "Combine" : "CombineUnaligned",
                                 &CombineKernel<T, kWidth>);

}  // namespace

Routes Routes::At(void* memory, int32_t max_rows, int32_t experts, int32_t chosen) {
  const int64_t copies = int64_t{max_rows} * chosen;
  Routes routes = {.max_rows = max_rows, .experts = experts, .chosen = chosen};
  routes.counts = static_cast<RouteCounts*>(memory);
  routes.tiles = reinterpret_cast<RowGroup*>(routes.counts + 1);
  routes.weights = reinterpret_cast<float*>(routes.tiles + MaxRowTiles(copies, experts));
  routes.choices = reinterpret_cast<int32_t*>(routes.weights + copies);
  routes.places = routes.choices + copies;
  return routes;
}

int64_t Routes::Bytes(int64_t max_rows, int64_t experts, int64_t chosen) {
  const int64_t copies = max_rows * chosen;
  constexpr int64_t kOfCopy = sizeof(float) + 2 * sizeof(int32_t), kOfTile = sizeof(RowGroup);
  return static_cast<int64_t>(sizeof(RouteCounts)) + MaxRowTiles(copies, experts) * kOfTile +
         copies * kOfCopy;
}

RowTiles Routes::row_tiles() const {
  return {tiles, &counts->tiles,
          static_cast<int32_t>(MaxRowTiles(int64_t{max_rows} * chosen, experts)),
          /*one_group=*/false, MaxTileRows(max_rows)};
}

void Route(Stream& stream, const RouteArgs& args) {
  constexpr int32_t kThreads = 256, kResident = 4;
  const Routes& routes = args.routes;
  SLUICE_CHECK(routes.experts <= kMaxExperts && routes.chosen <= kMaxChosen);
  SLUICE_CHECK(routes.chosen >= 1 && routes.chosen <= routes.experts);
  SLUICE_CHECK(args.rows.capacity <= routes.max_rows);
  LaunchOverRows(stream, kChooseExperts, args, kWarp);
  Launch(stream, kGroupCopies,
         {.blocks = PersistentBlocks(stream, routes.experts, kResident),
          .threads = kThreads,
          .shared_bytes = sizeof(GroupShared),
          .overlaps_previous = true},
         args);
}

template <typename T>
void CopyToPlaces(Stream& stream, const CopyToPlacesArgs<T>& args) {
  LaunchOverElements<T>(stream, kCopyToPlaces<T, kCopyElements<T>>, kCopyToPlaces<T, 1>, args,
                        args.dim, RowsAligned(args.x, args.dim) && RowsAligned(args.out, args.dim));
}

template <typename T>
void Combine(Stream& stream, const CombineArgs<T>& args) {
  LaunchOverElements<T>(stream, kCombine<T, kCopyElements<T>>, kCombine<T, 1>, args, args.dim,
                        RowsAligned(args.x, args.dim) && RowsAligned(args.bias, args.dim) &&
                            RowsAligned(args.out, args.dim));
}

template void CopyToPlaces(Stream&, const CopyToPlacesArgs<float>&);
template void CopyToPlaces(Stream&, const CopyToPlacesArgs<BFloat16>&);
template void Combine(Stream&, const CombineArgs<float>&);
template void Combine(Stream&, const CombineArgs<BFloat16>&);

}  // namespace sluice::kernels::cuda
