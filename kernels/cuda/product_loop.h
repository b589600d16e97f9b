// The loop of a product's block over tiles of rows and columns, and over k. The kernels of
// kernels/cuda/projection.cu and score.cu share it. Device code only, except for the launch.
//
// A block keeps the slices of several steps in flight, also across the ends of its tiles. Bulk
// copies bring the weights, since packed slices are contiguous; rows of x come 16 bytes at a time.
#pragma once

#include "kernels/cuda/matrix_tables.h"
#include "kernels/cuda/row_tiles.h"
#include "kernels/cuda/tile.h"
#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {

template <typename T>
struct Operands {
  using Value = T;
  static constexpr bool kPlaced = false;

  // Returns slice `step` of a panel of a matrix.
  __device__ const T* Slice(int32_t matrix, int32_t panel, int32_t step) const {
    const int64_t slice = (int64_t{matrix} * Panels(n) + panel) * Slices<T>(k) + step;
    return weight + slice * kSliceElements<T>;
  }
  // The k of a matrix.
  __device__ int32_t Depth(int32_t) const { return k; }

  const T* x;       // [rows, k]
  const T* weight;  // packed [matrices, k, n]
  int32_t k;
  int32_t n;
  RowTiles tiles;
};

// Operands whose matrices are in tables. Rows of x have `k` elements and rows of the result `n`, of
// which a matrix may use fewer.
template <typename T>
struct PlacedOperands : Operands<T> {
  static constexpr bool kPlaced = true;

  __device__ const PlacedMatrix& Matrix(int32_t matrix) const {
    return of.tables[matrix][of.place];
  }
  __device__ const T* Slice(int32_t matrix, int32_t panel, int32_t step) const {
    const PlacedMatrix& at = Matrix(matrix);
    const int64_t slice = int64_t{panel} * Slices<T>(at.k) + step;
    return static_cast<const T*>(at.weight) + slice * kSliceElements<T>;
  }
  __device__ int32_t Depth(int32_t matrix) const { return Matrix(matrix).k; }

  MatrixTables of;
};

template <typename T, typename Tile>
struct ProductShared {
  Stage<T, Tile> stages[Tile::kStages];
  Arrival arrivals[Tile::kStages];
};

// The tiles of a launch: `rows` by `columns`.
struct ProductGrid {
  int32_t rows, columns;
  int32_t width;  // columns of a tile
  int32_t steps;  // slices of k
};
// Returns the grid for tiles that join `joined` of the list's tiles and have `width` columns.
template <typename Operands>
__device__ inline ProductGrid GridOf(const Operands& operands, int32_t joined, int32_t width) {
  int32_t n = operands.n;
  if constexpr (Operands::kPlaced) n = operands.of.max_n != nullptr ? *operands.of.max_n : n;
  return {(*operands.tiles.count + joined - 1) / joined, (n + width - 1) / width, width,
          Slices<typename Operands::Value>(operands.k)};
}

// The sequence of a block's work: every GridBlocks()th of the tiles. Tiles of columns that their
// matrix does not have are left out.
template <int32_t kJoined, typename Operands>
class ProductWalk {
 public:
  __device__ ProductWalk(const Operands& operands, const ProductGrid& grid)
      : operands_(operands), grid_(grid) {
    Cut(BlockIndex(), row_, column_);
    Cut(GridBlocks(), row_step_, column_step_);
    Begin();
  }

  __device__ bool done() const { return row_ >= grid_.rows; }
  __device__ void Next() {
    Advance();
    Begin();
  }
  __device__ int32_t column() const { return column_ * grid_.width; }

  RowGroup rows = {};         // of the tile
  int32_t step = 0, end = 0;  // of k

 private:
  __device__ void Cut(int32_t item, int32_t& row, int32_t& column) const {
    column = item % grid_.columns;
    row = item / grid_.columns;
  }
  __device__ void Advance() {
    column_ += column_step_;
    const int32_t carry = column_ >= grid_.columns;
    column_ -= carry * grid_.columns;
    row_ += row_step_ + carry;
  }
  __device__ void Begin() {
    const RowTiles& tiles = operands_.tiles;
    if constexpr (Operands::kPlaced) {
      static_assert(kJoined == 1);
      while (!done() && column() >= operands_.Matrix(tiles.tiles[row_].matrix).n) Advance();
    }
    if (done()) return;
    static_assert(kJoined == 1 || kJoined == 2);
    rows = tiles.tiles[kJoined * row_];
    if (kJoined == 2 && 2 * row_ + 1 < *tiles.count) rows.count += tiles.tiles[2 * row_ + 1].count;
    step = 0;
    end = grid_.steps;
    if constexpr (Operands::kPlaced) {
      end = Slices<typename Operands::Value>(operands_.Depth(rows.matrix));
    }
  }

  const Operands& operands_;
  const ProductGrid& grid_;
  int32_t row_, column_;
  int32_t row_step_, column_step_;
};

template <typename Tile>
inline constexpr int32_t kJoined = Tile::kRows / kTileRows;

// Copies a block's operands to shared memory: the slices of one step after another, in the order of
// the grid. Values that do not change from step to step are computed once per tile.
template <bool kAligned, typename Operands, typename Tile>
class ProductSlices {
 public:
  using T = typename Operands::Value;

  __device__ ProductSlices(const Operands& operands, const ProductGrid& grid)
      : operands_(operands), at_(operands, grid) {
    Begin();
  }

  __device__ bool done() const { return at_.done(); }

  // Copies the slices of the next step. Rows of x beyond the last block of 8 with a live row are
  // left unchanged, because they are never read.
  __device__ void Bring(Stage<T, Tile>& stage, Arrival& arrival) {
    SLUICE_UNROLL
    for (int32_t i = 0; i < kPanels; ++i) {
      BulkCopy(stage.weight[i], weight_ + i * second_panel_, kSliceElements<T> * sizeof(T),
               arrival);
    }
    SLUICE_UNROLL
    for (int32_t i = 0; i < Tile::kRows; i += kTogether) {
      if (i >= brought_rows_) continue;
      T* const to = &stage.x[i + ThreadIndex() / kChunks][place_];
      cuda::Bring<T, kAligned>(to, x_ + i * int64_t{operands_.k}, operands_.x,
                               i < live_rows_ ? depth_left_ : 0);
    }
    x_ += kSliceDepth<T>;
    weight_ += kSliceElements<T>;
    depth_left_ -= kSliceDepth<T>;
    if (++at_.step < at_.end) return;
    at_.Next();
    Begin();
  }

 private:
  static constexpr int32_t kPanels = Tile::kColumns / kPanelColumns;
  static constexpr int32_t kChunks = kSliceDepth<T> / kCopyElements<T>;
  static constexpr int32_t kTogether = Tile::kThreads / kChunks;  // rows
  static_assert(kTogether % 8 == 0);  // so that all rows of a thread have the same ChunkPlace

  __device__ void Begin() {
    if (done()) return;
    const int32_t panels = Panels(operands_.n), slices = Slices<T>(operands_.k);
    const int32_t panel = at_.column() / kPanelColumns;
    weight_ = operands_.Slice(at_.rows.matrix, panel, at_.step);
    // Past the last panel, the last panel is copied again; its columns are not written.
    second_panel_ = panel + 1 < panels ? int64_t{slices} * kSliceElements<T> : 0;
    const int32_t row = ThreadIndex() / kChunks, chunk = ThreadIndex() % kChunks;
    const int32_t k = at_.step * kSliceDepth<T> + chunk * kCopyElements<T>;
    place_ = ChunkPlace(row, chunk) * kCopyElements<T>;
    x_ = operands_.x + int64_t{at_.rows.first_row + row} * operands_.k + k;
    depth_left_ = operands_.Depth(at_.rows.matrix) - k;
    live_rows_ = at_.rows.count - row;
    brought_rows_ = (at_.rows.count + 7) / 8 * 8 - row;
  }

  const Operands& operands_;
  ProductWalk<kJoined<Tile>, Operands> at_;
  const T* weight_ = nullptr;
  const T* x_ = nullptr;  // of the thread's first row and chunk
  int64_t second_panel_ = 0;
  int32_t place_ = 0, depth_left_ = 0;
  int32_t live_rows_ = 0, brought_rows_ = 0;  // counted from the thread's first row
};

// Calls finish(rows, column, sums) for each of the block's tiles, with the rows and the first
// column of the tile. Each sum is one running sum over k ascending.
template <typename Tile, bool kAligned, typename Operands, typename Finish>
__device__ inline void MultiplyTiles(const Operands& operands,
                                     ProductShared<typename Operands::Value, Tile>& shared,
                                     Finish finish) {
  using T = typename Operands::Value;
  constexpr int32_t kStages = Tile::kStages, kAhead = kStages - 1;
  if (ThreadIndex() == 0) {
    for (Arrival& arrival : shared.arrivals) {
      InitArrival(arrival, Tile::kColumns / kPanelColumns);
    }
  }
  SyncBlock();
  const ProductGrid grid = GridOf(operands, kJoined<Tile>, Tile::kColumns);
  ProductSlices<kAligned, Operands, Tile> slices(operands, grid);
  ProductWalk<kJoined<Tile>, Operands> at(operands, grid);
  for (int32_t i = 0; i < kAhead; ++i) {
    if (!slices.done()) slices.Bring(shared.stages[i], shared.arrivals[i]);
    CommitCopies();
  }
  int32_t stage = 0, phase = 0;
  for (; !at.done(); at.Next()) {
    Sums<T, Tile> sums;
    sums.Clear();
    SLUICE_ROLLED
    for (int32_t step = at.step; step < at.end; ++step) {
      WaitCopies<kAhead - 1>();
      WaitArrival(shared.arrivals[stage], phase);
      SyncBlock();  // this step's slices have arrived, and the previous ones are no longer read
      const int32_t free = stage == 0 ? kAhead : stage - 1;
      if (!slices.done()) slices.Bring(shared.stages[free], shared.arrivals[free]);
      CommitCopies();
      sums.AddProducts(shared.stages[stage], at.rows.count);
      if (++stage == kStages) stage = 0, ++phase;
    }
    finish(at.rows, at.column(), sums);
  }
  WaitCopies<0>();
}

// Launches `small` or `large`, kernels with tiles of these sizes; both give the same bits. `large`
// is null if there is none.
template <typename T, typename Argument>
inline void LaunchProduct(Stream& stream, const Operands<T>& operands, const Kernel& small,
                          const Kernel* large, const Argument& argument) {
  const auto tiles = [&](int32_t rows, int32_t columns) {
    const int64_t down = (operands.tiles.capacity + rows - 1) / rows;
    return down * ((operands.n + columns - 1) / columns);
  };
  const int64_t large_tiles = tiles(LargeTile::kRows / kTileRows, LargeTile::kColumns);
  if (large != nullptr && operands.tiles.one_group && large_tiles >= stream.processors()) {
    return Launch(stream, *large,
                  {PersistentBlocks(stream, large_tiles, 1), LargeTile::kThreads,
                   sizeof(ProductShared<T, LargeTile>)},
                  argument);
  }
  const int64_t items = tiles(1, SmallTile::kColumns);
  Launch(stream, small,
         {PersistentBlocks(stream, items, 2), SmallTile::kThreads,
          sizeof(ProductShared<T, SmallTile>)},
         argument);
}

}  // namespace sluice::kernels::cuda
