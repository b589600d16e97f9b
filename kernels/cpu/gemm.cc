#include "kernels/cpu/gemm.h"

#include <algorithm>

#include "base/ceil_div.h"
#include "base/check.h"
#include "kernels/cpu/simd/dispatch.h"

namespace sluice::kernels {
namespace {

// A part of a product. The bias, if any, and `out` begin at its first row and column.
struct Block {
  int64_t matrix, row, rows, col, cols;
  const float* bias;
  float* out;
  int64_t ldo;
  bool accumulate;
};

// The kernel of a profile for a matrix, and the size of the parts that it takes at once.
class Multiplier {
 public:
  Multiplier(const Context& context, const PackedWeights& weights)
      : table_(simd::TableFor(context.profile)),
        int8_(simd::Int8TableFor(context.profile)),
        weights_(weights) {}

  bool quantized() const { return weights_.quantized(); }
  bool in_pairs() const { return table_.pairs && weights_.format() == WeightFormat::kBF16; }
  int64_t panel_cols() const { return quantized() ? int8_.panel_cols : table_.panel_cols; }

  // Returns the number of rows of x that fit the second-level cache together with a panel.
  int64_t RowsAtOnce() const {
    const int64_t k = weights_.k();
    if (in_pairs()) {
      const int64_t depth = CeilDiv(k, simd::kPairsDepth) * simd::kPairsDepth;
      return std::clamp(simd::kPairsArea / depth / simd::kPairsFewRows * simd::kPairsFewRows,
                        simd::kPairsFewRows, simd::kPairsRows);
    }
    const int64_t tile_rows = quantized() ? int8_.tile_rows : table_.tile_rows;
    const bool int4 = weights_.format() == WeightFormat::kInt4;
    const int64_t values =
        quantized() ? kInt8Bytes / (int4 ? int8_.value_bytes_int4 : int8_.value_bytes) : kFloats;
    return std::clamp<int64_t>(values / k, 2 * tile_rows, 16 * tile_rows);
  }

  // Returns the number of columns that rows not in pairs are multiplied with at a time.
  int64_t ColumnsAtOnce() const {
    return quantized() ? kInt8Columns : 4 * int64_t{table_.panel_cols};
  }

  template <typename Args>  // GemmArgs or TiledGemmArgs
  void Multiply(const Block& part, const Args& args) const {
    if (weights_.format() == WeightFormat::kInt8) return MultiplyInt8(part, args);
    if (weights_.format() == WeightFormat::kInt4) return MultiplyInt4(part, args.quantized);
    (weights_.format() == WeightFormat::kBF16 ? table_.gemm_bf16 : table_.gemm_f32)(
        {.x = args.x + part.row * args.ldx,
         .ldx = args.ldx,
         .rows = part.rows,
         .panels = weights_.panels(part.matrix, part.col),
         .k = weights_.k(),
         .cols = part.cols,
         .bias = part.bias,
         .out = part.out,
         .ldo = part.ldo,
         .accumulate = part.accumulate});
  }

 private:
  static constexpr int64_t kFloats = int64_t{1} << 16;
  static constexpr int64_t kInt8Bytes = int64_t{1} << 18;
  static constexpr int64_t kInt8Columns = 128;

  template <typename Args>
  simd::KeptChannels KeptOf(const Block& part, const Args& args) const {
    const std::span<const int32_t> channels = weights_.kept_channels();
    if (channels.empty()) return {};
    SLUICE_CHECK(args.x != nullptr);
    return {.x = args.x + part.row * args.ldx,
            .ldx = args.ldx,
            .channels = channels.data(),
            .count = std::ssize(channels),
            .weights = weights_.kept(part.col),
            .ldw = weights_.kept_stride()};
  }

  template <typename Args>
  void MultiplyInt8(const Block& part, const Args& args) const {
    const QuantizedRows& rows = args.quantized;
    SLUICE_CHECK(rows.k() == weights_.k() && rows.sums(0) == nullptr);
    int8_.gemm({.x = rows.row(part.row),
                .stride = rows.stride(),
                .row_scales = rows.scales() + part.row,
                .rows = part.rows,
                .panels = weights_.panels(part.matrix, part.col),
                .k = CeilDiv(weights_.k(), simd::kInt8Depth) * (simd::kInt8Depth / kFour),
                .cols = part.cols,
                .scales = weights_.scales(part.matrix, part.col),
                .corrections = weights_.corrections(part.matrix, part.col),
                .bias = part.bias,
                .out = part.out,
                .ldo = part.ldo,
                .accumulate = part.accumulate,
                .kept = KeptOf(part, args)});
  }

  void MultiplyInt4(const Block& part, const QuantizedRows& rows) const {
    SLUICE_CHECK(rows.k() == weights_.k() && rows.sums(0) != nullptr);
    int8_.gemm_int4({.x = rows.row(part.row),
                     .stride = rows.stride(),
                     .row_scales = rows.scales() + part.row,
                     .begins = rows.sums(part.row),
                     .begins_stride = rows.sums_stride(),
                     .rows = part.rows,
                     .panels = weights_.panels(part.matrix, part.col),
                     .k = CeilDiv(weights_.k(), simd::kInt8Depth) * simd::kInt8Depth,
                     .group = weights_.group(),
                     .cols = part.cols,
                     .scales = weights_.group_scales(part.matrix, part.col),
                     .zeros = weights_.group_zeros(part.matrix, part.col),
                     .bias = part.bias,
                     .out = part.out,
                     .ldo = part.ldo,
                     .accumulate = part.accumulate});
  }

  static constexpr int64_t kFour = 4;

  const simd::Table& table_;
  const simd::Int8Table& int8_;
  const PackedWeights& weights_;
};

// The sizes of the blocks that a group's product is cut into. They do not influence results.
struct BlockSizes {
  int64_t rows, cols;
  int64_t chunks = 0;  // blocks of columns of each block of rows

  int64_t Count(const RowGroup& group) const { return CeilDiv(group.count, rows) * chunks; }
};

// Chooses the sizes for products with `row_blocks` blocks of rows in total.
BlockSizes ChooseBlocks(const Multiplier& multiplier, int64_t n, int64_t row_blocks, int threads) {
  constexpr int64_t kUnitsPerThread = 4;
  BlockSizes sizes = {.rows = multiplier.RowsAtOnce(), .cols = multiplier.ColumnsAtOnce()};
  if (multiplier.in_pairs() && row_blocks > 0) {
    // Each chunk rounds the rows again, so use the fewest chunks that keep all threads busy.
    const int64_t chunks = CeilDiv(kUnitsPerThread * threads, row_blocks);
    const int64_t width = multiplier.panel_cols();
    const int64_t panels = CeilDiv(CeilDiv(n, chunks), width);
    sizes.cols = std::clamp<int64_t>(panels * width, sizes.cols, simd::kPairsCols);
  }
  sizes.chunks = CeilDiv(n, sizes.cols);
  return sizes;
}

// The matrix that multiplies a group.
struct GroupMatrix {
  const PackedWeights* weights;  // nullptr for none
  int64_t index = 0;
};

// The work of a grouped GEMM in units of one row block by one chunk of columns. The chunks of a row
// block are neighbours. `matrix_of` returns the GroupMatrix of a group.
template <typename MatrixOf>
class Blocks {
 public:
  Blocks(const Context& context, std::span<const RowGroup> groups, const MatrixOf& matrix_of)
      : context_(context),
        groups_(groups),
        matrix_of_(matrix_of),
        threads_(context.pool->running()) {
    int64_t rows = 1;
    const PackedWeights* sized = nullptr;
    for (const RowGroup& group : groups) {
      const PackedWeights* const weights = matrix_of(group).weights;
      if (weights == nullptr) continue;
      if (!SameShape(sized, weights)) rows = Multiplier(context, *weights).RowsAtOnce();
      sized = weights;
      row_blocks_ += CeilDiv(group.count, rows);
      products_ += group.count * weights->n() * weights->k();
    }
    ForEachGroup([this](const RowGroup& group, const GroupMatrix&, const BlockSizes& sizes) {
      count_ += sizes.Count(group);
      return true;
    });
  }

  int64_t count() const { return count_; }
  int64_t products() const { return products_; }  // multiply-adds
  int threads() const { return threads_; }

  // Calls run(group, matrix, first row, rows, first column, columns) for the units [begin, end).
  template <typename Run>
  void ForEach(int64_t begin, int64_t end, Run run) const {
    int64_t first = 0;  // the group's first unit
    ForEachGroup([&](const RowGroup& group, const GroupMatrix& matrix, const BlockSizes& sizes) {
      const int64_t units = sizes.Count(group);
      for (int64_t u = std::max(begin, first); u < std::min(end, first + units); ++u) {
        const int64_t row = (u - first) / sizes.chunks * sizes.rows;
        const int64_t col = (u - first) % sizes.chunks * sizes.cols;
        run(group, matrix, group.first_row + row, std::min(sizes.rows, group.count - row), col,
            std::min(sizes.cols, matrix.weights->n() - col));
      }
      first += units;
      return first < end;
    });
  }

 private:
  static bool SameShape(const PackedWeights* a, const PackedWeights* b) {
    return a == b ||
           (a != nullptr && a->k() == b->k() && a->n() == b->n() && a->format() == b->format());
  }

  // Calls use(group, matrix, sizes) for the groups with a matrix, until it returns false.
  template <typename Use>
  void ForEachGroup(Use use) const {
    BlockSizes sizes{};
    const PackedWeights* sized = nullptr;
    for (const RowGroup& group : groups_) {
      const GroupMatrix matrix = matrix_of_(group);
      if (matrix.weights == nullptr) continue;
      if (!SameShape(sized, matrix.weights)) {
        sizes = ChooseBlocks(Multiplier(context_, *matrix.weights), matrix.weights->n(),
                             row_blocks_, threads_);
      }
      sized = matrix.weights;
      if (!use(group, matrix, sizes)) return;
    }
  }

  const Context& context_;
  const std::span<const RowGroup> groups_;
  const MatrixOf& matrix_of_;
  // The running threads, read once: all calls of ForEachGroup must choose the same sizes.
  const int threads_;
  int64_t row_blocks_ = 0, count_ = 0, products_ = 0;
};

template <typename MatrixOf>
void MultiplyGroups(const Context& context, std::span<const RowGroup> groups, const GemmArgs& args,
                    const MatrixOf& matrix_of) {
  constexpr int64_t kRangesPerThread = 8;
  const Blocks<MatrixOf> blocks(context, groups, matrix_of);
  const auto run = [&](const RowGroup& group, const GroupMatrix& matrix, int64_t row, int64_t rows,
                       int64_t col, int64_t cols) {
    const float* bias = args.bias;
    if (bias != nullptr) bias += group.matrix * args.bias_stride + col;
    Multiplier(context, *matrix.weights)
        .Multiply({.matrix = matrix.index,
                   .row = row,
                   .rows = rows,
                   .col = col,
                   .cols = cols,
                   .bias = bias,
                   .out = args.out + row * args.ldo + col,
                   .ldo = args.ldo,
                   .accumulate = args.accumulate},
                  args);
  };
  const int64_t grain =
      std::max<int64_t>(1, blocks.count() / (blocks.threads() * kRangesPerThread));
  context.pool->ParallelFor(
      blocks.count(), grain, blocks.products(),
      [&](int64_t begin, int64_t end, int) { blocks.ForEach(begin, end, run); });
}

// The division of a product into tiles: enough for all threads, otherwise the largest possible
// tiles.
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

void GroupedGemm(const Context& context, const PackedWeights& weights,
                 std::span<const RowGroup> groups, const GemmArgs& args) {
  MultiplyGroups(context, groups, args, [&weights](const RowGroup& group) {
    SLUICE_CHECK(group.matrix < weights.matrices());
    return GroupMatrix{&weights, group.matrix};
  });
}

void GroupedGemm(const Context& context, WeightsOfGroup weights_of,
                 std::span<const RowGroup> groups, const GemmArgs& args) {
  SLUICE_CHECK(args.bias == nullptr);
  MultiplyGroups(context, groups, args, [&weights_of](const RowGroup& group) {
    const PackedWeights* const weights = weights_of(group);
    SLUICE_CHECK(weights == nullptr || (weights->matrices() == 1 && !weights->quantized()));
    return GroupMatrix{weights};
  });
}

void Gemm(const Context& context, const PackedWeights& weights, int64_t rows,
          const GemmArgs& args) {
  const RowGroup group = {.matrix = 0, .first_row = 0, .count = static_cast<int32_t>(rows)};
  GroupedGemm(context, weights, {&group, 1}, args);
}

void GemmByTiles(const Context& context, const PackedWeights& weights, int64_t rows,
                 const TiledGemmArgs& args, absl::FunctionRef<void(const GemmTile&)> use) {
  const Multiplier multiplier(context, weights);
  SLUICE_CHECK(kGemmTileStep % multiplier.panel_cols() == 0 && weights.matrices() == 1);
  const int64_t rows_at_once = multiplier.RowsAtOnce();
  const int64_t cols_at_once =
      multiplier.in_pairs() ? simd::kPairsCols : multiplier.ColumnsAtOnce();
  const auto compute = [&](const GemmTile& tile, int64_t row, int64_t col) {
    multiplier.Multiply({.matrix = 0,
                         .row = tile.row + row,
                         .rows = std::min(rows_at_once, tile.rows - row),
                         .col = tile.col + col,
                         .cols = std::min(cols_at_once, tile.cols - col),
                         .bias = args.bias == nullptr ? nullptr : args.bias + tile.col + col,
                         .out = tile.out + row * kGemmTileStride + col,
                         .ldo = kGemmTileStride,
                         .accumulate = false},
                        args);
  };
  const Tiling tiling = TilingOf(rows, weights.n(), context.pool->running());
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
  context.pool->ParallelFor(tiling.row_tiles * tiling.col_tiles, 1,
                            rows * weights.n() * weights.k(), run);
}

}  // namespace sluice::kernels
