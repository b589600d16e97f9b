#include "kernels/cuda/hopper_projection.h"

#include <algorithm>

#include "base/ceil_div.h"
#include "base/check.h"
#include "kernels/cuda/activation_math.h"
#include "kernels/cuda/vector.h"
#include "kernels/cuda/weight_layout.h"
#include "kernels/simt/warpgroup.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int32_t kDepth = kGroupSliceDepth;  // the depth of a stage
constexpr int32_t kPack = kCopyElements<BFloat16>;
static_assert(kTileRows == kGroupRows && kGroupMatrix == kPack);

// A tile of a block: kColumns columns of kGroups row tiles, one warpgroup for each row tile. Of the
// pipeline's stages, one is being multiplied, the previous one may still be read, and the others
// are being copied.
template <int32_t kRowTiles, int32_t kWidth, int32_t kPipeline, int32_t kResident>
struct Tiling {
  static constexpr int32_t kGroups = kRowTiles, kColumns = kWidth, kStages = kPipeline;
  static constexpr int32_t kBlocks = kResident;  // blocks of a processor
  static constexpr int32_t kThreads = kGroups * kGroupThreads;
  // The columns of a slice of the weight. One bulk copy brings them.
  static constexpr int32_t kSliced = kColumns < kGroupSliceColumns ? kColumns : kGroupSliceColumns;
  static constexpr int32_t kSlices = kColumns / kSliced;
  static_assert(kColumns % kSliced == 0 && kGroupSliceColumns % kSliced == 0);
};
// Reads each operand the fewest times.
struct Large : Tiling<2, 256, 4, 1> {
  static constexpr char kName[] = "HopperProjectionLarge";
};
// For groups of few rows.
struct Medium : Tiling<1, 128, 4, 2> {
  static constexpr char kName[] = "HopperProjectionMedium";
};
// Provides work for all processors even if there are few rows and few columns.
struct Small : Tiling<1, 64, 6, 2> {
  static constexpr char kName[] = "HopperProjectionSmall";
};
struct Tiny : Tiling<1, 32, 8, 2> {
  static constexpr char kName[] = "HopperProjectionTiny";
};

template <typename Tile>
using Sums = float[Tile::kColumns / 2];

// Rows of x; + 8, so that neighbouring rows begin in other banks.
using HopperRows = BFloat16[kGroupRows][kDepth + kPack];

template <typename Tile>
struct HopperShared {
  // The slices of the weight. Bulk copies bring them.
  alignas(kCopyBytes) BFloat16 weight[Tile::kStages][Tile::kSlices][Tile::kSliced * kDepth];
  union {  // The sums of a tile reuse the memory of its rows.
    alignas(kCopyBytes) HopperRows x[Tile::kStages][Tile::kGroups];
    // + 8, so that neighbouring rows begin in other banks
    float sums[Tile::kGroups][kGroupRows][Tile::kSliced + 8];
  };
  Arrival arrivals[Tile::kStages];
};

struct Work {
  RowGroup tile;  // of the thread's warpgroup; it may have no rows
  int32_t column;
};

#ifdef SLUICE_HAS_PRODUCTS

constexpr int32_t kRowPacks = kDepth / kPack, kDepthProducts = kDepth / kGroupDepth;

// The index of a thread in its warpgroup, and of the warpgroup in the block.
__device__ inline int32_t GroupThread() { return ThreadIndex() % kGroupThreads; }
__device__ inline int32_t Group() { return ThreadIndex() / kGroupThreads; }

// Copies the operands of a block's tiles: slices of the weight by bulk copies, and rows of x 16
// bytes at a time. Each thread copies from several rows, at the same column of each stage.
template <typename Tile>
class Copies {
 public:
  __device__ Copies(const ProjectionArgs<BFloat16>& args, const Work& work)
      : args_(args),
        row_(GroupThread() / kRowPacks),
        column_(GroupThread() % kRowPacks * kPack),
        rows_(work.tile.count - row_),
        x_(args.x + int64_t{work.tile.first_row + row_} * args.k + column_) {
    const int32_t panels = GroupPanels(args.n);
    SLUICE_UNROLL
    for (int32_t i = 0; i < Tile::kSlices; ++i) {
      const int32_t panel = work.column / kGroupSliceColumns + i;
      // Past the last panel, the last panel is copied again; its products are not written.
      weight_[i] = args.weight +
                   (int64_t{work.tile.matrix} * panels + (panel < panels ? panel : panels - 1)) *
                       GroupSlices(args.k) * kGroupSliceElements +
                   PlaceInGroupSlice(0, work.column % kGroupSliceColumns);
    }
  }

  // Copies the operands of step `step` to stage `stage`. Rows and depths beyond the last are zeros.
  __device__ void Bring(int32_t step, int32_t stage, HopperShared<Tile>& shared) const {
    SLUICE_UNROLL
    for (int32_t i = 0; i < Tile::kSlices; ++i) {
      BulkCopy(shared.weight[stage][i], weight_[i] + int64_t{step} * kGroupSliceElements,
               sizeof(shared.weight[stage][i]), shared.arrivals[stage]);
    }
    const int32_t k = step * kDepth, left = args_.k - k - column_;
    const int32_t elements = left < 0 ? 0 : left < kPack ? left : kPack;
    SLUICE_UNROLL
    for (int32_t i = 0; i < kGroupRows / kRowsApart; ++i) {
      const int32_t bytes =
          i * kRowsApart < rows_ ? elements * static_cast<int32_t>(sizeof(BFloat16)) : 0;
      CopyAsync(&shared.x[stage][Group()][row_ + i * kRowsApart][column_],
                bytes > 0 ? x_ + k + int64_t{i} * kRowsApart * args_.k : args_.x, bytes);
    }
  }

 private:
  static constexpr int32_t kRowsApart = kGroupThreads / kRowPacks;

  const ProjectionArgs<BFloat16>& args_;
  const int32_t row_, column_;  // the first 8 elements of x that the thread copies
  const int32_t rows_;          // the tile's rows from its first on
  const BFloat16* const x_;
  const BFloat16* weight_[Tile::kSlices];  // of the tile's columns
};

// The rows of a stage that a warp multiplies, which it holds in registers.
using Fragments = uint32_t[kDepthProducts][4];

template <typename Tile>
__device__ void MultiplyStage(const HopperShared<Tile>& shared, int32_t stage, Fragments& fragments,
                              Sums<Tile>& sums) {
  const BFloat16* const rows = &shared.x[stage][Group()][Warp() % (kGroupThreads / kWarp) * 16 +
                                                         Lane() % 16][Lane() / 16 * kPack];
  SLUICE_UNROLL
  for (int32_t i = 0; i < kDepthProducts; ++i) {
    LoadMatrices<false>(rows + i * kGroupDepth, fragments[i]);
  }
  BeginProducts();
  SLUICE_UNROLL
  for (int32_t i = 0; i < kDepthProducts; ++i) {
    // The slices of a stage are contiguous, so they are one operand.
    MultiplyAddGroup<Tile::kColumns>(
        sums, fragments[i],
        {&shared.weight[stage][0][PlaceInGroupSlice(i * kGroupDepth, 0)],
         PlaceInGroupSlice(kGroupMatrix, 0) * static_cast<int32_t>(sizeof(BFloat16)),
         PlaceInGroupSlice(0, kGroupMatrix) * static_cast<int32_t>(sizeof(BFloat16))});
  }
  CommitProducts();
}

// Multiplies the block's tiles. `before` is the number of steps of the tiles before them.
template <typename Tile>
__device__ void MultiplyTiles(const ProjectionArgs<BFloat16>& args, const Work& work,
                              int32_t before, HopperShared<Tile>& shared, Sums<Tile>& sums) {
  constexpr int32_t kStages = Tile::kStages, kAhead = kStages - 2;
  const int32_t steps = GroupSlices(args.k);
  const Copies<Tile> copies(args, work);
  SLUICE_UNROLL
  for (int32_t step = 0; step < kAhead; ++step) {
    if (step < steps) copies.Bring(step, (before + step) % kStages, shared);
    CommitCopies();
  }
  Fragments fragments;
  SLUICE_ROLLED
  for (int32_t step = 0; step < steps; ++step) {
    const int32_t stage = (before + step) % kStages, next = step + kAhead;
    WaitCopies<kAhead - 1>();
    WaitArrival(shared.arrivals[stage], (before + step) / kStages);
    SyncBlock();            // this stage has arrived, and the one before the last is no longer read
    WaitProducts<0>(sums);  // the fragments are no longer read
    MultiplyStage<Tile>(shared, stage, fragments, sums);
    if (next < steps) copies.Bring(next, (before + next) % kStages, shared);
    CommitCopies();
  }
  WaitProducts<0>(sums);
}

// Calls write(row, column, sum) for each element of this thread in kCount columns from kFirst on.
template <typename Tile, int32_t kFirst, int32_t kCount, typename Write>
__device__ void ForEach(const Sums<Tile>& sums, Write write) {
  SLUICE_UNROLL
  for (int32_t i = kFirst / 2; i < (kFirst + kCount) / 2; ++i) {
    const int32_t row = Warp() % (kGroupThreads / kWarp) * 16 + Lane() / 4 + i / 2 % 2 * 8;
    write(row, i / 4 * 8 + Lane() % 4 * 2 + i % 2 - kFirst, sums[i]);
  }
}

// Writes 8 columns of a row from `column` on: the sums plus bias and accumulation, activated.
__device__ inline void WriteColumns(const ProjectionArgs<BFloat16>& args, Floats<kGroupMatrix> sums,
                                    const Floats<kGroupMatrix>& bias, const Pack<BFloat16>& before,
                                    const Pack<BFloat16>& gate, int64_t element) {
  Pack<BFloat16> out;
  SLUICE_UNROLL
  for (int32_t i = 0; i < kGroupMatrix; ++i) {
    float sum = sums.at[i];
    if (args.bias != nullptr) sum += bias.at[i];
    if (args.accumulate) sum += Widen(before.at[i]);
    out.at[i] = Narrow<BFloat16>(sum);
    if (!args.activate) continue;
    const BFloat16 in = args.gate == nullptr ? out.at[i] : gate.at[i];
    float activated = Apply(args.activation, Widen(in));
    if (args.gate != nullptr) activated *= Widen(out.at[i]);
    out.at[i] = Narrow<BFloat16>(activated);
  }
  StoreWhole(out, args.out + element);
}

// Writes the columns of a slice, whose sums are in shared memory. A thread has 8 columns of some
// rows. It reads the operands to add for two rows at a time.
template <typename Tile>
__device__ void WriteSlice(const ProjectionArgs<BFloat16>& args, const RowGroup& tile,
                           int32_t first_column, const HopperShared<Tile>& shared) {
  constexpr int32_t kPacks = Tile::kSliced / kGroupMatrix, kRowsAtOnce = kGroupThreads / kPacks;
  constexpr int32_t kTurns = 2;
  const int32_t place = GroupThread() % kPacks * kGroupMatrix, column = first_column + place;
  if (column >= args.n) return;
  Floats<kGroupMatrix> bias = {};
  SLUICE_UNROLL
  for (int32_t i = 0; i < kGroupMatrix && args.bias != nullptr; ++i) {
    bias.at[i] = Widen(args.bias[tile.matrix * args.bias_stride + column + i]);
  }
  SLUICE_ROLLED
  for (int32_t first = GroupThread() / kPacks; first < tile.count; first += kTurns * kRowsAtOnce) {
    Pack<BFloat16> before[kTurns] = {}, gate[kTurns] = {};
    const auto element = [&](int32_t turn) {
      return int64_t{tile.first_row + first + turn * kRowsAtOnce} * args.n + column;
    };
    SLUICE_UNROLL
    for (int32_t turn = 0; turn < kTurns; ++turn) {
      if (first + turn * kRowsAtOnce >= tile.count) continue;
      if (args.accumulate) before[turn] = LoadWhole<Pack<BFloat16>>(args.out + element(turn));
      if (args.gate != nullptr) gate[turn] = LoadWhole<Pack<BFloat16>>(args.gate + element(turn));
    }
    SLUICE_UNROLL
    for (int32_t turn = 0; turn < kTurns; ++turn) {
      const int32_t row = first + turn * kRowsAtOnce;
      if (row >= tile.count) continue;
      WriteColumns(args, Load<kGroupMatrix>(&shared.sums[Group()][row][place]), bias, before[turn],
                   gate[turn], element(turn));
    }
  }
}

// Writes the sums, one slice's columns at a time. They pass through shared memory, so that
// neighbouring threads write neighbouring columns.
template <typename Tile, int32_t kFirst = 0>
__device__ void WriteTiles(const ProjectionArgs<BFloat16>& args, const Work& work,
                           HopperShared<Tile>& shared, const Sums<Tile>& sums) {
  SyncBlock();  // the stages, or the previous sums, are no longer read
  ForEach<Tile, kFirst, Tile::kSliced>(sums, [&](int32_t row, int32_t column, float sum) {
    shared.sums[Group()][row][column] = sum;
  });
  SyncBlock();
  WriteSlice<Tile>(args, work.tile, work.column + kFirst, shared);
  if constexpr (kFirst + Tile::kSliced < Tile::kColumns) {
    WriteTiles<Tile, kFirst + Tile::kSliced>(args, work, shared, sums);
  } else {
    SyncBlock();  // the sums' memory may be filled again
  }
}

// Returns tile `index` of the list, or a tile without rows if the index is past the last one.
__device__ inline RowGroup TileAt(const RowTiles& tiles, int32_t count, int32_t index) {
  if (index < count) return tiles.tiles[index];
  return {tiles.tiles[count - 1].matrix, 0, 0};
}

#endif  // SLUICE_HAS_PRODUCTS

template <typename Tile>
__global__ void __launch_bounds__(Tile::kThreads)
    HopperProjectionKernel(ProjectionArgs<BFloat16> args) {
#ifdef SLUICE_HAS_PRODUCTS
  auto& shared = SharedMemory<HopperShared<Tile>>();
  if (ThreadIndex() == 0) {
    for (Arrival& arrival : shared.arrivals) InitArrival(arrival, Tile::kSlices);
  }
  SyncBlock();
  const int32_t column_tiles = (args.n + Tile::kColumns - 1) / Tile::kColumns;
  const int32_t count = *args.tiles.count;
  const int32_t row_tiles = (count + Tile::kGroups - 1) / Tile::kGroups;
  // The block's work in a grid of column tiles and row tiles, without a division in the loop.
  const int32_t rows_apart = GridBlocks() / column_tiles;
  const int32_t columns_apart = GridBlocks() % column_tiles;
  int32_t row = BlockIndex() / column_tiles, column = BlockIndex() % column_tiles;
  int32_t steps = 0;  // steps that the block has done
  while (row < row_tiles) {
    const Work work = {TileAt(args.tiles, count, row * Tile::kGroups + Group()),
                       column * Tile::kColumns};
    Sums<Tile> sums = {};
    MultiplyTiles<Tile>(args, work, steps, shared, sums);
    WriteTiles<Tile>(args, work, shared, sums);
    steps += GroupSlices(args.k);
    row += rows_apart;
    column += columns_apart;
    if (column >= column_tiles) {
      column -= column_tiles;
      ++row;
    }
  }
#endif
}

template <typename Tile>
const Kernel kHopperProjection = KernelOf(Tile::kName, &HopperProjectionKernel<Tile>);

template <typename Tile>
int64_t ItemsOf(const ProjectionArgs<BFloat16>& args) {
  return CeilDiv(args.tiles.capacity, Tile::kGroups) * CeilDiv(args.n, Tile::kColumns);
}

// Estimates the total cycles for one step of k: the time that the busiest processor multiplies,
// copies, or waits.
template <typename Tile>
double StepCycles(const Stream& stream, const ProjectionArgs<BFloat16>& args) {
  // A product of 64 x 16 by 16 x c takes c / 2 cycles. A processor gets about 28 bytes a cycle from
  // the device's cache while all processors read. The latency of a copy is about 1000 cycles.
  constexpr double kCyclesOfColumn = 2, kBytesPerCycle = 28, kLatency = 1000;
  constexpr double kBytes =
      (Tile::kGroups * kGroupRows + Tile::kColumns) * kDepth * sizeof(BFloat16);
  const int64_t items = ItemsOf<Tile>(args), processors = stream.processors();
  const int64_t at_once = std::min<int64_t>(Tile::kBlocks, CeilDiv(items, processors));
  const double waves = static_cast<double>(CeilDiv(items, processors * at_once));
  const double work =
      static_cast<double>(at_once) *
      std::max(kCyclesOfColumn * Tile::kGroups * Tile::kColumns, kBytes / kBytesPerCycle);
  return waves * std::max(work, kLatency / (Tile::kStages - 2));
}

using Run = void (*)(Stream&, const ProjectionArgs<BFloat16>&);

template <typename Tile>
void LaunchTiles(Stream& stream, const ProjectionArgs<BFloat16>& args) {
  Launch(stream, kHopperProjection<Tile>,
         {PersistentBlocks(stream, ItemsOf<Tile>(args), Tile::kBlocks), Tile::kThreads,
          sizeof(HopperShared<Tile>)},
         args);
}

}  // namespace

int32_t HopperSharedBytes() {
  return std::max({sizeof(HopperShared<Large>), sizeof(HopperShared<Medium>),
                   sizeof(HopperShared<Small>), sizeof(HopperShared<Tiny>)});
}

void ProjectOnHopper(Stream& stream, const ProjectionArgs<BFloat16>& args) {
  SLUICE_CHECK(args.k >= 1 && args.n >= 1);
  SLUICE_CHECK(RowsAligned(args.x, args.k) && RowsAligned(args.weight, kGroupSliceElements));
  SLUICE_CHECK(RowsAligned(args.out, args.n) && RowsAligned(args.gate, args.n));
  Run best = &LaunchTiles<Medium>;
  double least = StepCycles<Medium>(stream, args);
  const auto consider = [&](double cycles, Run run) {
    if (cycles >= least) return;
    least = cycles;
    best = run;
  };
  if (args.tiles.one_group) consider(StepCycles<Large>(stream, args), &LaunchTiles<Large>);
  consider(StepCycles<Small>(stream, args), &LaunchTiles<Small>);
  consider(StepCycles<Tiny>(stream, args), &LaunchTiles<Tiny>);
  best(stream, args);
}

}  // namespace sluice::kernels::cuda
