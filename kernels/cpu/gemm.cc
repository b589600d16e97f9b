#include "kernels/cpu/gemm.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdlib>

#include "base/ceil_div.h"
#include "base/check.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/simd/dispatch.h"

namespace sluice::kernels {
namespace {

// The ways in which a panel holds its elements; see simd::Table.
struct F32Panel {
  using Element = float;
  static float Narrow(float value) { return value; }
  static int64_t Slot(int64_t row, int64_t col, int64_t width) { return row * width + col; }
  static int64_t Rows(int64_t k) { return k; }
};
struct BF16Panel {
  using Element = uint16_t;
  // Requires a value that was widened from bf16, so that nothing is lost.
  static uint16_t Narrow(float value) {
    return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
  }
  static int64_t Slot(int64_t row, int64_t col, int64_t width) {
    return row * width + (col < width / 2 ? 2 * col : 2 * col - width + 1);
  }
  static int64_t Rows(int64_t k) { return k; }
};
struct PairsPanel : BF16Panel {
  static int64_t Slot(int64_t row, int64_t col, int64_t width) {
    return row / 2 * 2 * width + 2 * col + row % 2;
  }
  static int64_t Rows(int64_t k) { return CeilDiv(k, simd::kPairsDepth) * simd::kPairsDepth; }
};

// Calls `use` with the panel type of weights of `dtype` under `table`.
template <typename Use>
auto WithPanelType(DType dtype, const simd::Table& table, Use use) {
  if (dtype != DType::kBF16) return use(F32Panel{});
  return table.pairs ? use(PairsPanel{}) : use(BF16Panel{});
}

// Copies columns [col, col + cols) of one source matrix to a panel, with zeros after `cols` and k.
template <typename Panel>
void PackPanel(const WeightSource& source, int64_t matrix, int64_t col, int64_t cols, int64_t width,
               typename Panel::Element* panel) {
  constexpr int64_t kRun = 64;
  float run[kRun];
  SLUICE_CHECK(width <= kRun);
  const int64_t rows = Panel::Rows(source.k);
  if (cols < width || source.k < rows) {
    std::fill(panel, panel + rows * width, typename Panel::Element{});
  }
  const int64_t base = matrix * source.k * source.n;
  if (!source.transposed) {
    for (int64_t row = 0; row < source.k; ++row) {
      ConvertToFloat(source.data, source.dtype, base + row * source.n + col, cols, run);
      for (int64_t c = 0; c < cols; ++c) panel[Panel::Slot(row, c, width)] = Panel::Narrow(run[c]);
    }
    return;
  }
  for (int64_t first = 0; first < source.k; first += kRun) {
    const int64_t count = std::min(kRun, source.k - first);
    for (int64_t c = 0; c < cols; ++c) {
      ConvertToFloat(source.data, source.dtype, base + (col + c) * source.k + first, count, run);
      for (int64_t i = 0; i < count; ++i) {
        panel[Panel::Slot(first + i, c, width)] = Panel::Narrow(run[i]);
      }
    }
  }
}

// Packs panels [begin, end), counted over all matrices; the first matrix begins at `packed`.
template <typename Panel>
void PackPanels(const WeightSource& source, int64_t width, int64_t begin, int64_t end,
                std::byte* packed) {
  const int64_t panels = CeilDiv(source.n, width);
  auto* elements = reinterpret_cast<typename Panel::Element*>(packed);
  for (int64_t i = begin; i < end; ++i) {
    const int64_t col = i % panels * width;
    PackPanel<Panel>(source, i / panels, col, std::min(width, source.n - col), width,
                     elements + i * width * Panel::Rows(source.k));
  }
}

bool InPairs(const PackedWeights& weights, const simd::Table& table) {
  return table.pairs && weights.dtype() == DType::kBF16;
}

// Returns the number of rows of x that fit the second-level cache beside a panel.
int64_t RowsAtOnce(const PackedWeights& weights, const simd::Table& table) {
  const int64_t k = weights.k();
  if (!InPairs(weights, table)) {
    return std::clamp<int64_t>((int64_t{1} << 16) / k, 2 * table.tile_rows, 16 * table.tile_rows);
  }
  return std::clamp(
      simd::kPairsArea / PairsPanel::Rows(k) / simd::kPairsFewRows * simd::kPairsFewRows,
      simd::kPairsFewRows, simd::kPairsRows);
}

// Returns the number of columns that rows not in pairs are multiplied with at a time.
int64_t ColumnsAtOnce(const simd::Table& table) { return 4 * table.panel_cols; }

// The work of a GEMM in units of one row block by one chunk of columns. The chunks of a row block
// are neighbours. The position of the cuts does not influence results.
class Blocks {
 public:
  Blocks(const PackedWeights& weights, const simd::Table& table, std::span<const RowGroup> groups,
         int threads)
      : groups_(groups), rows_(RowsAtOnce(weights, table)), cols_(ColumnsAtOnce(table)) {
    int64_t row_blocks = 0;
    for (const RowGroup& group : groups) row_blocks += CeilDiv(group.count, rows_);
    if (InPairs(weights, table) && row_blocks > 0) {
      // Each chunk rounds the rows again, so the chunks are as few as keep all threads busy.
      const int64_t chunks = CeilDiv(kUnitsPerThread * threads, row_blocks);
      const int64_t panels = CeilDiv(CeilDiv(weights.n(), chunks), table.panel_cols);
      cols_ = std::clamp<int64_t>(panels * table.panel_cols, cols_, simd::kPairsCols);
    }
    chunks_ = CeilDiv(weights.n(), cols_);
    count_ = row_blocks * chunks_;
  }

  int64_t count() const { return count_; }
  int64_t cols() const { return cols_; }

  // Calls run(group, first row, rows, first column) for the units [begin, end).
  template <typename Run>
  void ForEach(int64_t begin, int64_t end, Run run) const {
    int64_t first = 0;  // the group's first unit
    for (const RowGroup& group : groups_) {
      const int64_t units = CeilDiv(group.count, rows_) * chunks_;
      for (int64_t u = std::max(begin, first); u < std::min(end, first + units); ++u) {
        const int64_t row = (u - first) / chunks_ * rows_;
        run(group, group.first_row + row, std::min<int64_t>(rows_, group.count - row),
            (u - first) % chunks_ * cols_);
      }
      first += units;
      if (first >= end) return;
    }
  }

 private:
  static constexpr int64_t kUnitsPerThread = 4;

  const std::span<const RowGroup> groups_;
  int64_t rows_, cols_, chunks_, count_;
};

// The division of a product into tiles: enough for all threads, each as large as possible.
struct Tiling {
  int64_t rows, cols;            // of a tile; the last ones may be smaller
  int64_t row_tiles, col_tiles;  // tiles of the same columns are neighbours
};

Tiling TilingOf(int64_t rows, int64_t n, int threads) {
  constexpr int64_t kTilesPerThread = 4, kFewRows = 32;
  const int64_t wanted = kTilesPerThread * threads;
  Tiling tiling;
  const bool many = CeilDiv(rows, kGemmTileRows) * CeilDiv(n, kGemmTileColumns) >= wanted;
  tiling.cols = many ? kGemmTileColumns : kGemmTileStep;
  tiling.col_tiles = CeilDiv(n, tiling.cols);
  const int64_t each = CeilDiv(rows, CeilDiv(wanted, tiling.col_tiles));
  tiling.rows = std::min(CeilDiv(each, kFewRows) * kFewRows, kGemmTileRows);
  tiling.row_tiles = CeilDiv(rows, tiling.rows);
  return tiling;
}

}  // namespace

void PackedWeights::Free::operator()(std::byte* p) const { std::free(p); }

PackedWeights PackedWeights::Pack(const Context& context, const WeightSource& source) {
  SLUICE_CHECK(source.matrices >= 1 && source.k >= 1 && source.n >= 1);
  const simd::Table& table = simd::TableFor(context.profile);
  const int64_t width = table.panel_cols;
  const int64_t panels = CeilDiv(source.n, width);
  PackedWeights packed;
  packed.matrices_ = source.matrices;
  packed.k_ = source.k;
  packed.n_ = source.n;
  packed.dtype_ = source.dtype == DType::kBF16 ? DType::kBF16 : DType::kF32;
  packed.panel_rows_ = WithPanelType(packed.dtype_, table,
                                     [&]<typename Panel>(Panel) { return Panel::Rows(source.k); });
  packed.stride_ = panels * width * packed.panel_rows_;
  packed.bytes_ = source.matrices * packed.stride_ * DTypeBytes(packed.dtype_);
  packed.data_.reset(static_cast<std::byte*>(AllocateMemory(packed.bytes_)));
  SLUICE_CHECK(packed.data_ != nullptr);
  const auto pack =
      WithPanelType(packed.dtype_, table, []<typename Panel>(Panel) { return &PackPanels<Panel>; });
  context.pool->ParallelFor(source.matrices * panels, 1, [&](int64_t begin, int64_t end, int) {
    pack(source, width, begin, end, packed.data_.get());
  });
  return packed;
}

void GroupedGemm(const Context& context, const PackedWeights& weights,
                 std::span<const RowGroup> groups, const GemmArgs& args) {
  constexpr int64_t kRangesPerThread = 8;
  const simd::Table& table = simd::TableFor(context.profile);
  const auto gemm = weights.dtype() == DType::kBF16 ? table.gemm_bf16 : table.gemm_f32;
  const Blocks blocks(weights, table, groups, context.pool->threads());
  const auto run = [&](const RowGroup& group, int64_t row, int64_t rows, int64_t col) {
    SLUICE_CHECK(group.position < weights.matrices());
    const float* bias = args.bias;
    if (bias != nullptr) bias += group.position * args.bias_stride + col;
    gemm({.x = args.x + row * args.ldx,
          .ldx = args.ldx,
          .rows = rows,
          .panels = weights.panels(group.position, col),
          .k = weights.k(),
          .cols = std::min(blocks.cols(), weights.n() - col),
          .bias = bias,
          .out = args.out + row * args.ldo + col,
          .ldo = args.ldo,
          .accumulate = args.accumulate});
  };
  const int64_t grain =
      std::max<int64_t>(1, blocks.count() / (context.pool->threads() * kRangesPerThread));
  context.pool->ParallelFor(blocks.count(), grain, [&](int64_t begin, int64_t end, int) {
    blocks.ForEach(begin, end, run);
  });
}

void Gemm(const Context& context, const PackedWeights& weights, int64_t rows,
          const GemmArgs& args) {
  const RowGroup group = {.position = 0, .first_row = 0, .count = static_cast<int32_t>(rows)};
  GroupedGemm(context, weights, {&group, 1}, args);
}

void GemmByTiles(const Context& context, const PackedWeights& weights, int64_t rows,
                 const TiledGemmArgs& args, absl::FunctionRef<void(const GemmTile&)> use) {
  const simd::Table& table = simd::TableFor(context.profile);
  SLUICE_CHECK(kGemmTileStep % table.panel_cols == 0 && weights.matrices() == 1);
  const auto gemm = weights.dtype() == DType::kBF16 ? table.gemm_bf16 : table.gemm_f32;
  const int64_t rows_at_once = RowsAtOnce(weights, table);
  const int64_t cols_at_once = InPairs(weights, table) ? simd::kPairsCols : ColumnsAtOnce(table);
  const auto compute = [&](const GemmTile& tile, int64_t row, int64_t col) {
    gemm({.x = args.x + (tile.row + row) * args.ldx,
          .ldx = args.ldx,
          .rows = std::min(rows_at_once, tile.rows - row),
          .panels = weights.panels(0, tile.col + col),
          .k = weights.k(),
          .cols = std::min(cols_at_once, tile.cols - col),
          .bias = args.bias == nullptr ? nullptr : args.bias + tile.col + col,
          .out = tile.out + row * kGemmTileStride + col,
          .ldo = kGemmTileStride,
          .accumulate = false});
  };
  const Tiling tiling = TilingOf(rows, weights.n(), context.pool->threads());
  const auto run = [&](int64_t begin, int64_t end, int worker) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i % tiling.row_tiles * tiling.rows;
      const int64_t col = i / tiling.row_tiles * tiling.cols;
      const GemmTile tile = {.row = row,
                             .rows = std::min(tiling.rows, rows - row),
                             .col = col,
                             .cols = std::min(tiling.cols, weights.n() - col),
                             .out = args.tiles + worker * kGemmTileRows * kGemmTileStride,
                             .worker = worker};
      for (int64_t c = 0; c < tile.cols; c += cols_at_once) {
        for (int64_t r = 0; r < tile.rows; r += rows_at_once) compute(tile, r, c);
      }
      use(tile);
    }
  };
  context.pool->ParallelFor(tiling.row_tiles * tiling.col_tiles, 1, run);
}

}  // namespace sluice::kernels
