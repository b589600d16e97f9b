// The loop of a product's block over tiles of few rows: up to kTileRows rows by some blocks of
// columns (kernels/cuda/packed.h). The launch selects the width of the tiles so that they fill the
// device in one wave. A block then reads its part of the weight once, and each processor has about
// the same part.
//
// One warp copies the weight in bulk, and one copies rows of x, 16 bytes at a time. The other warps
// only multiply. Two of them share a block of columns: one has the even blocks of 8 rows, and one
// the odd blocks. The products of a sum and their order are the same as in kernels/cuda/tile.h, so
// the bits are the same.
//
// A launch multiplies the rows by one matrix or by two (kMatrices). The two matrices of a gated MLP
// have the same shape. A warp then has the sums of both for the same rows and columns.
//
// For bfloat16 and int8, with weights in panels or, in bfloat16, in slices for warpgroups. Device
// code only, except for the launch.
#pragma once

#include <algorithm>

#include "base/ceil_div.h"
#include "kernels/cuda/few_rows_weights.h"
#include "kernels/cuda/product_loop.h"
#include "kernels/cuda/tile.h"
#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {

struct FewRows {
  static constexpr int32_t kMaxBlocks = 8;  // of columns
  static constexpr int32_t kDown = 2;       // warps of a block of columns
  static constexpr int32_t kSlices = 2;     // of weights in a stage
  static constexpr int32_t kMinStages = 3, kMaxStages = 16;
  static constexpr int32_t kCopying = 2;  // warps that copy
  static constexpr int32_t Threads(int32_t blocks) { return (blocks * kDown + kCopying) * kWarp; }
  static constexpr int32_t kMaxThreads = (kMaxBlocks * kDown + kCopying) * kWarp;
};

SLUICE_HOST_DEVICE constexpr int32_t Lesser(int32_t a, int32_t b) { return a < b ? a : b; }

// A stage has kSlices slices of the tile's columns, and then rows of x. A step of k has a slice of
// each matrix. The last 16 bytes of a row are unused, so that neighbouring rows begin in other
// banks.
template <int32_t kMatrices>
inline constexpr int32_t kFewRowsSteps = FewRows::kSlices / kMatrices;
template <typename T, int32_t kMatrices>
inline constexpr int32_t kFewRowsStride =
    kFewRowsSteps<kMatrices>* kSliceDepth<T> + kCopyElements<T>;

// The stages of a launch.
struct FewRowsStages {
  int32_t count;
  int32_t elements;  // of each
  int32_t runs;      // the most runs of neighbouring blocks in one panel that a tile has
};

// The stages follow in memory.
struct alignas(kCopyBytes) FewRowsShared {
  Arrival arrivals[FewRows::kMaxStages];
};

// The stages in the order of their use.
template <typename T>
class FewRowsRing {
 public:
  __device__ FewRowsRing(FewRowsShared& shared, const FewRowsStages& stages, int32_t blocks)
      : shared_(shared),
        stages_(stages),
        slice_(blocks * kBlockElements<T>),
        memory_(reinterpret_cast<T*>(&shared + 1)) {}

  __device__ int32_t stages() const { return stages_.count; }
  __device__ int32_t runs() const { return stages_.runs; }
  // A slice of the weight and the rows in the present stage, and the arrival of the weight.
  __device__ T* weight(int32_t slice) const {
    return memory_ + stage_ * stages_.elements + slice * slice_;
  }
  __device__ T* x() const { return weight(FewRows::kSlices); }
  __device__ Arrival& arrival() const { return shared_.arrivals[stage_]; }
  __device__ int32_t phase() const { return phase_; }
  __device__ void Next() {
    if (++stage_ == stages_.count) stage_ = 0, ++phase_;
  }

 private:
  FewRowsShared& shared_;
  const FewRowsStages stages_;
  const int32_t slice_;  // its elements in a stage
  T* const memory_;
  int32_t stage_ = 0, phase_ = 0;
};

// The sums of a warp, in blocks of 8 rows by 16 columns. They are distributed like the sums of
// kernels/cuda/tile.h.
template <typename Weights, int32_t kMatrices>
class FewRowsSums {
 public:
  using T = typename Weights::Value;
  static constexpr int32_t kRowBlocks = kTileRows / 8 / FewRows::kDown, kColumnBlocks = 1;

  // The first row of the warp's first block.
  static __device__ int32_t FirstRow() { return Warp() % FewRows::kDown * 8; }
  static __device__ int32_t Row(int32_t r, int32_t i) {
    return FirstRow() + r * FewRows::kDown * 8 + Lane() % 4 * 2 + i;
  }
  static __device__ int32_t Column(int32_t) {
    return Warp() / FewRows::kDown * kBlockColumns + Weights::Column();
  }
  // Returns the sums of a row and two columns, after Settle. The arguments are compile-time
  // constants.
  __device__ Floats<2> At(int32_t r, int32_t i, int32_t, int32_t matrix = 0) const {
    const SumOf<T>(&sums)[4] = at_[matrix][r];
    return {{static_cast<float>(sums[i]), static_cast<float>(sums[i + 2])}};
  }

  // Adds the products of the first kBlocks blocks of rows and of kOfK steps of a stage, by
  // ascending k. `rows` are the places of the lane's rows and chunk in x: lane l passes the address
  // of row l % 8 of each block and of chunk l / 8.
  template <int32_t kBlocks, int32_t kOfK>
  __device__ void AddProducts(const FewRowsRing<T>& ring, const int32_t (&rows)[kBlocks]) {
    constexpr int32_t kOfSlice = kBlockElements<T> / (kWarp * kCopyElements<T>);
    constexpr int32_t kSteps = kOfSlice * kOfK;
    uint32_t a[kSteps][kMatrices][4];
    SLUICE_UNROLL
    for (int32_t step = 0; step < kSteps; ++step) {
      SLUICE_UNROLL
      for (int32_t m = 0; m < kMatrices; ++m) {
        const T* const block = ring.weight(step / kOfSlice * kMatrices + m) +
                               Warp() / FewRows::kDown * kBlockElements<T>;
        Weights::Load(block, step % kOfSlice, a[step][m]);
      }
    }
    SLUICE_UNROLL
    for (int32_t step = 0; step < kSteps; step += 2) {
      uint32_t b[kBlocks][4];
      SLUICE_UNROLL
      for (int32_t r = 0; r < kBlocks; ++r) {
        LoadMatrices<false>(ring.x() + rows[r] + step * (2 * kCopyElements<T>), b[r]);
      }
      SLUICE_UNROLL
      for (int32_t i = 0; i < 2; ++i) {
        SLUICE_UNROLL
        for (int32_t r = 0; r < kBlocks; ++r) {
          const uint32_t pair[2] = {b[r][2 * i], b[r][2 * i + 1]};
          SLUICE_UNROLL
          for (int32_t m = 0; m < kMatrices; ++m) MultiplyAdd(at_[m][r], a[step + i][m], pair);
        }
      }
    }
  }
  __device__ void Settle() {
    SLUICE_UNROLL
    for (SumOf<T>(&of_matrix)[kRowBlocks][4] : at_) {
      SLUICE_UNROLL
      for (SumOf<T>(&sums)[4] : of_matrix) Weights::Settle(sums);
    }
  }

 private:
  SumOf<T> at_[kMatrices][kRowBlocks][4] = {};
};

// Copies the weights of a block's tiles to the stages, one step of k after another. One warp uses
// it.
template <typename Weights, int32_t kMatrices>
class FewRowsWeightCopies {
 public:
  using T = typename Weights::Value;
  static constexpr int32_t kSteps = kFewRowsSteps<kMatrices>;

  // `second` is the second weight, if there are two.
  __device__ FewRowsWeightCopies(const Operands<T>& operands, const T* second,
                                 const ProductGrid& grid)
      : operands_(operands), second_(second), grid_(grid), at_(operands, grid) {
    Begin();
  }

  // The other warps wait for the arrivals.
  __device__ void Wait(int32_t) const {}
  // Copies the weights of the next step, if there is one: each run of blocks that are neighbours in
  // a panel. Columns beyond the last panel are left unchanged, because they are never read.
  __device__ void Bring(FewRowsRing<T>& ring) {
    if (at_.done()) return;
    const T* from[kMatrices];
    SLUICE_UNROLL
    for (int32_t m = 0; m < kMatrices; ++m) from[m] = weights_[m];
    int32_t block = first_block_, left = blocks_, place = 0;
    SLUICE_ROLLED
    for (int32_t run = 0; run < ring.runs(); ++run) {
      const int32_t count = Lesser(left, kPanelBlocks - block % kPanelBlocks);
      SLUICE_UNROLL
      for (int32_t slice = 0; slice < FewRows::kSlices; ++slice) {
        const int32_t step = slice / kMatrices;
        // A run or a slice beyond the last has no bytes, but its copy counts.
        const int32_t elements = at_.step + step < at_.end ? count * kBlockElements<T> : 0;
        WarpBulkCopy(ring.weight(slice) + place, from[slice % kMatrices] + step * Weights::kSlice,
                     static_cast<int32_t>(elements * sizeof(T)), ring.arrival());
      }
      place += count * kBlockElements<T>;
      SLUICE_UNROLL
      for (int32_t m = 0; m < kMatrices; ++m) {
        from[m] += count * kBlockElements<T> + to_next_panel_;
      }
      block += count;
      left -= count;
    }
    ring.Next();
    SLUICE_UNROLL
    for (int32_t m = 0; m < kMatrices; ++m) weights_[m] += kSteps * Weights::kSlice;
    at_.step += kSteps;
    if (at_.step < at_.end) return;
    at_.Next();
    Begin();
  }

 private:
  static constexpr int32_t kPanelBlocks = Weights::kPanelBlocks;

  __device__ void Begin() {
    if (at_.done()) return;
    const int32_t panels = Weights::PanelsOf(operands_.n), slices = Slices<T>(operands_.k);
    first_block_ = at_.column() / kBlockColumns;
    blocks_ = Lesser(grid_.width / kBlockColumns, panels * kPanelBlocks - first_block_);
    const int32_t panel = first_block_ / kPanelBlocks;
    const int64_t first = (int64_t{at_.rows.matrix} * panels + panel) * slices * Weights::kSlice +
                          first_block_ % kPanelBlocks * kBlockElements<T>;
    weights_[0] = operands_.weight + first;
    if constexpr (kMatrices == 2) weights_[1] = second_ + first;
    to_next_panel_ = int64_t{slices - 1} * Weights::kSlice;
  }

  static_assert(kMatrices == 1 || kMatrices == 2);

  const Operands<T>& operands_;
  const T* const second_;
  const ProductGrid& grid_;
  ProductWalk<1, Operands<T>> at_;
  int32_t first_block_ = 0, blocks_ = 0;  // of columns
  const T* weights_[kMatrices] = {};      // of the tile's first block
  int64_t to_next_panel_ = 0;             // from the end of a panel's slice
};

// Copies the rows of x in the same way, 16 bytes at a time. One warp uses it.
template <typename T, int32_t kMatrices>
class FewRowsXCopies {
 public:
  static constexpr int32_t kSteps = kFewRowsSteps<kMatrices>;

  __device__ FewRowsXCopies(const Operands<T>& operands, const ProductGrid& grid)
      : operands_(operands), at_(operands, grid), rows_apart_(int64_t{kRowsTogether} * operands.k) {
    Begin();
  }

  // Waits for the rows of the next step that is multiplied. The rows of `ahead` steps were copied.
  __device__ void Wait(int32_t ahead) const {
    constexpr int32_t kMany = 5;
    if (ahead >= kMany) {
      WaitCopies<kMany - 1>();
    } else {
      WaitCopies<FewRows::kMinStages - 2>();
    }
  }
  // Copies the rows of the next step, if there is one. Depths beyond the last are zeros. Dead rows
  // are left unchanged, because they are never read.
  __device__ void Bring(FewRowsRing<T>& ring) {
    if (!at_.done()) {
      const int32_t depth = depth_left_ < 0 ? 0 : Lesser(depth_left_, kCopyElements<T>);
      const auto bytes = static_cast<int32_t>(depth * sizeof(T));
      T* to = ring.x() + row() * kStride + chunk() * kCopyElements<T>;
      const T* from = depth > 0 ? x_ : operands_.x;
      for (int32_t r = row(); r < at_.rows.count; r += kRowsTogether) {
        CopyAsync(to, from, bytes);
        to += kRowsTogether * kStride;
        from += rows_apart_;
      }
      ring.Next();
      x_ += kSteps * kSliceDepth<T>;
      depth_left_ -= kSteps * kSliceDepth<T>;
      at_.step += kSteps;
      if (at_.step >= at_.end) {
        at_.Next();
        Begin();
      }
    }
    CommitCopies();
  }

 private:
  static constexpr int32_t kStride = kFewRowsStride<T, kMatrices>;
  static constexpr int32_t kChunks = kSteps * kSliceDepth<T> / kCopyElements<T>;
  static constexpr int32_t kRowsTogether = kWarp / kChunks;

  static __device__ int32_t row() { return Lane() / kChunks; }
  static __device__ int32_t chunk() { return Lane() % kChunks; }

  __device__ void Begin() {
    if (at_.done()) return;
    depth_left_ = operands_.k - chunk() * kCopyElements<T>;
    x_ = operands_.x + int64_t{at_.rows.first_row + row()} * operands_.k +
         chunk() * kCopyElements<T>;
  }

  const Operands<T>& operands_;
  ProductWalk<1, Operands<T>> at_;
  const int64_t rows_apart_;
  const T* x_ = nullptr;  // of the lane's first row and chunk
  int32_t depth_left_ = 0;
};

// The barrier of a step for all warps. This step's operands have arrived, and the previous step's
// are no longer read.
__device__ inline void MeetInStep() { SyncBlock(); }

// The work of a warp that copies.
template <typename Copies, typename T>
__device__ inline void CopyFewRows(Copies copies, const Operands<T>& operands,
                                   const ProductGrid& grid, FewRowsRing<T> ring) {
  const int32_t ahead = ring.stages() - 1;
  for (int32_t i = 0; i < ahead; ++i) copies.Bring(ring);
  for (ProductWalk<1, Operands<T>> at(operands, grid); !at.done(); at.Next()) {
    SLUICE_ROLLED
    for (int32_t step = 0; step < grid.steps; step += Copies::kSteps) {
      copies.Wait(ahead);
      MeetInStep();
      copies.Bring(ring);
    }
  }
  WaitCopies<0>();
}

// Adds the products of a tile by a warp with kBlocks blocks of live rows. A dead row of a block is
// read as the last live row; its sums are not written.
template <int32_t kBlocks, typename T, typename Weights, int32_t kMatrices>
__device__ inline void MultiplyFewRowsTile(int32_t steps, int32_t live, FewRowsRing<T>& ring,
                                           FewRowsSums<Weights, kMatrices>& sums) {
  constexpr int32_t kSteps = kFewRowsSteps<kMatrices>, kStride = kFewRowsStride<T, kMatrices>;
  int32_t rows[kBlocks];
  SLUICE_UNROLL
  for (int32_t r = 0; r < kBlocks; ++r) {
    const int32_t row = sums.FirstRow() + r * FewRows::kDown * 8 + Lane() % 8;
    rows[r] = Lesser(row, live - 1) * kStride + Lane() / 8 * kCopyElements<T>;
  }
  SLUICE_ROLLED
  for (; steps >= kSteps; steps -= kSteps) {
    WaitArrival(ring.arrival(), ring.phase());
    MeetInStep();
    sums.template AddProducts<kBlocks, kSteps>(ring, rows);
    ring.Next();
  }
  if (kSteps == 1 || steps == 0) return;
  WaitArrival(ring.arrival(), ring.phase());
  MeetInStep();
  sums.template AddProducts<kBlocks, 1>(ring, rows);
  ring.Next();
}

// Calls finish(rows, column, sums) for each of the block's tiles, with the rows and the first
// column of the tile. Each sum is one running sum over k ascending. `second` is the second weight,
// if there are two.
template <typename Weights, int32_t kMatrices, typename T, typename Finish>
__device__ inline void MultiplyFewRows(const Operands<T>& operands, const T* second,
                                       const FewRowsStages& stages, FewRowsShared& shared,
                                       Finish finish) {
  using WeightCopies = FewRowsWeightCopies<Weights, kMatrices>;
  using XCopies = FewRowsXCopies<T, kMatrices>;
  const int32_t blocks = (BlockThreads() / kWarp - FewRows::kCopying) / FewRows::kDown;
  if (ThreadIndex() == 0) {
    for (int32_t i = 0; i < stages.count; ++i) {
      InitWarpArrival(shared.arrivals[i], stages.runs * FewRows::kSlices);
    }
  }
  SyncBlock();
  const ProductGrid grid = GridOf(operands, 1, blocks * kBlockColumns);
  FewRowsRing<T> ring(shared, stages, blocks);
  const int32_t others = Warp() - blocks * FewRows::kDown;
  if (others == 0) {
    return CopyFewRows(WeightCopies(operands, second, grid), operands, grid, ring);
  }
  if (others == 1) return CopyFewRows(XCopies(operands, grid), operands, grid, ring);
  for (ProductWalk<1, Operands<T>> at(operands, grid); !at.done(); at.Next()) {
    FewRowsSums<Weights, kMatrices> sums;
    const int32_t first = sums.FirstRow(), live = at.rows.count;
    if (first >= live || at.column() + Warp() / FewRows::kDown * kBlockColumns >= operands.n) {
      SLUICE_ROLLED
      for (int32_t step = 0; step < grid.steps; step += kFewRowsSteps<kMatrices>) {
        MeetInStep();
        ring.Next();
      }
      continue;
    }
    switch ((live - first + FewRows::kDown * 8 - 1) / (FewRows::kDown * 8)) {
      case 1:
        MultiplyFewRowsTile<1>(grid.steps, live, ring, sums);
        break;
      case 2:
        MultiplyFewRowsTile<2>(grid.steps, live, ring, sums);
        break;
      case 3:
        MultiplyFewRowsTile<3>(grid.steps, live, ring, sums);
        break;
      default:
        MultiplyFewRowsTile<4>(grid.steps, live, ring, sums);
    }
    sums.Settle();
    finish(at.rows, at.column(), sums);
  }
}

// A launch for few rows. It has no threads if other kernels are faster.
struct FewRowsLaunch {
  FewRowsStages stages = {};
  LaunchShape shape = {};
};

// Returns the most panels, of `panel` blocks each, that a tile of `blocks` blocks has parts of.
constexpr int32_t FewRowsRuns(int32_t blocks, int32_t panel) {
  int32_t runs = 1;
  for (int32_t first = 0; first < panel * blocks; first += blocks) {
    runs = std::max(runs, (first + blocks - 1) / panel - first / panel + 1);
  }
  return runs;
}

// Returns the launch in which the busiest processor copies least: the columns of its tiles, and for
// each tile the rows of x, which cost about as much as a block of columns. If several tiles of many
// rows read a matrix, and the other kernels have two tiles for each processor, those are faster,
// because they access shared memory less often.
template <typename Weights, int32_t kMatrices, typename T>
inline FewRowsLaunch FewRowsLaunchFor(const Stream& stream, const Operands<T>& operands) {
  constexpr int32_t kAlwaysFew = 32;  // rows of a tile
  constexpr int32_t kFewTiles = 2;    // of one group
  const int64_t processors = stream.processors(), tiles = operands.tiles.capacity;
  if (tiles > 1 && operands.tiles.max_rows > kAlwaysFew) {
    if (tiles * Panels(operands.n) >= 2 * processors) return {};
    if (operands.tiles.one_group && tiles > kFewTiles) return {};
  }
  FewRowsLaunch best;
  int64_t least = 0;
  for (int32_t blocks = 1; blocks <= FewRows::kMaxBlocks; ++blocks) {
    const int32_t elements = blocks * FewRows::kSlices * kBlockElements<T> +
                             operands.tiles.max_rows * kFewRowsStride<T, kMatrices>;
    const auto bytes = static_cast<int32_t>(elements * sizeof(T));
    const auto header = static_cast<int32_t>(sizeof(FewRowsShared));
    const int32_t stages =
        std::min(FewRows::kMaxStages, (stream.shared_bytes_limit() - header) / bytes);
    if (stages < FewRows::kMinStages) break;
    const int64_t items = tiles * CeilDiv(operands.n, blocks * kBlockColumns);
    const int64_t cost = CeilDiv(items, processors) * (kMatrices * blocks + 1);
    if (blocks > 1 && cost > least) continue;
    least = cost;
    best = {
        {stages, elements, FewRowsRuns(blocks, Weights::kPanelBlocks)},
        {PersistentBlocks(stream, items, 1), FewRows::Threads(blocks), header + stages * bytes}};
  }
  return best;
}

}  // namespace sluice::kernels::cuda
