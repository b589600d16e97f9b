// Products in int8 have the bits of the reference in integers, on every unit, in any batch. Each
// suite prints its seed.
#include <limits>

#include "kernels/cpu/gemm.h"
#include "kernels/reference/int8.h"
#include "tests/kernels/cpu/quantized_fixture.h"
#include "tests/support/invariance.h"

namespace sluice::kernels {
namespace {

using reference::Quantized;

// One or several matrices: their columns in order, and the same values as a source stores them.
struct Matrices {
  std::vector<Quantized> columns;  // [matrices * n]
  std::vector<float> stored;
  PackedWeights packed;

  Matrices(const Context& context, std::mt19937_64& random, int64_t matrices, int64_t k, int64_t n,
           bool transposed)
      : stored(matrices * k * n) {
    const std::vector<float> values = RandomRows(random, matrices * n, k);
    columns = QuantizeEach(values, k);
    for (int64_t i = 0; i < matrices * n; ++i) {
      for (int64_t row = 0; row < k; ++row) {
        const int64_t base = i / n * k * n;
        stored[base + (transposed ? i % n * k + row : row * n + i % n)] = values[i * k + row];
      }
    }
    packed =
        PackedWeights::PackInt8(context, {stored.data(), DType::kF32, matrices, k, n, transposed});
  }
};

class Int8Test : public QuantizedTest {
 protected:
  // Returns a function that multiplies by a matrix which is stored in either way.
  auto Run() {
    return [this](const Int8Inputs<float>& in) {
      const bool transposed = !in.scales.empty() || random_() % 2 != 0;
      std::vector<float> columns = in.columns;
      for (int64_t i = 0; !transposed && i < std::ssize(columns); ++i) {
        columns[i % in.k * in.n + i / in.k] = in.columns[i];
      }
      const WeightSource floats = {columns.data(), DType::kF32, 1, in.k, in.n, transposed};
      const WeightSource stored = {in.stored.data(), DType::kI8,      1, in.k, in.n,
                                   transposed,       in.scales.data()};
      const PackedWeights packed =
          PackedWeights::PackInt8(Two(), in.scales.empty() ? floats : stored);
      const Rows quantized(Two(), in.x, in.rows, in.k);
      std::vector<float> out = in.before;
      out.resize(in.rows * in.n);
      Gemm(Two(), packed, in.rows,
           {.x = nullptr,
            .ldx = 0,
            .bias = in.bias.empty() ? nullptr : in.bias.data(),
            .bias_stride = 0,
            .out = out.data(),
            .ldo = in.n,
            .accumulate = !in.before.empty(),
            .quantized = quantized.rows()});
      return out;
    };
  }
};

TEST_P(Int8Test, ProductsHaveTheBitsOfTheReference) {
  SCOPED_TRACE(Trace());
  for (const auto& [rows, k, n] : Shapes(random_)) {
    ExpectInt8EqualsReference(Run(), RandomInt8Inputs<float>(random_, rows, k, n));
  }
}

TEST_P(Int8Test, QuantisedRowsHaveTheScalesOfTheReference) {
  SCOPED_TRACE(Trace());
  for (const auto& [rows, k, n] : Shapes(random_)) {
    const std::vector<float> x = RandomRows(random_, rows, k);
    const Rows quantized(Two(), x, rows, k);
    const std::vector<Quantized> expected = QuantizeEach(x, k);
    for (int64_t r = 0; r < rows; ++r) {
      ASSERT_TRUE(SameBits(quantized.rows().scales()[r], expected[r].scale)) << r;
    }
  }
}

TEST_P(Int8Test, TheLargestSumsDoNotSaturate) { ExpectInt8SumsDoNotSaturate<float>(Run()); }

TEST_P(Int8Test, TheLargestSumsOfStoredValuesDoNotOverflow) {
  constexpr int64_t kColumns = 3;
  Int8Inputs<float> in = {.rows = 2,
                          .k = kMaxInt8Depth,
                          .n = kColumns,
                          .x = std::vector<float>(2 * kMaxInt8Depth, 1.0f),
                          .stored = std::vector<int8_t>(kColumns * kMaxInt8Depth, -128),
                          .scales = std::vector<float>(kColumns, 0.5f)};
  std::fill_n(in.x.begin(), kMaxInt8Depth, -1.0f);
  std::fill_n(in.stored.begin(), kMaxInt8Depth, int8_t{127});
  ExpectInt8EqualsReference(Run(), in);
}

TEST_P(Int8Test, GroupsUseTheirPositionsMatrix) {
  SCOPED_TRACE(Trace());
  const Matrices weights(Two(), random_, 7, 70, 45, false);
  CheckGroups(Two(), random_, weights.packed, RandomFloats(random_, std::ssize(weights.columns)),
              /*sums=*/false, [&](const Quantized& row, int64_t column) {
                return Int8Product(row, weights.columns[column]);
              });
}

TEST_P(Int8Test, RowsDoNotDependOnTheirBatchOrOnThreads) {
  SCOPED_TRACE(Trace());
  for (const auto& [all, k, n] : {Shape{70, 100, 70}, Shape{70, 515, 129}, Shape{70, 2048, 16}}) {
    const Matrices weights(One(), random_, 1, k, n, true);
    CheckInvariance(One(), Two(), random_, weights.packed, all, /*sums=*/false);
  }
}

TEST_P(Int8Test, TilesHaveTheBitsOfTheProduct) {
  SCOPED_TRACE(Trace());
  const int64_t rows = RandomInt(random_, 1, 128), k = RandomInt(random_, 1, 300), n = 1100;
  const Matrices weights(Two(), random_, 1, k, n, true);
  const std::vector<float> x = RandomRows(random_, rows, k), bias = RandomFloats(random_, n);
  const Rows quantized(Two(), x, rows, k);
  std::vector<float> whole(rows * n), by_tiles(rows * n, kPoison);
  std::vector<float> tiles(2 * kGemmTileRows * kGemmTileStride);
  Gemm(Two(), weights.packed, rows,
       {nullptr, 0, bias.data(), 0, whole.data(), n, false, quantized.rows()});
  GemmByTiles(Two(), weights.packed, rows,
              {nullptr, 0, bias.data(), tiles.data(), quantized.rows()}, [&](const GemmTile& tile) {
                for (int64_t r = 0; r < tile.rows; ++r) {
                  std::copy_n(tile.out + r * kGemmTileStride, tile.cols,
                              &by_tiles[(tile.row + r) * n + tile.col]);
                }
              });
  EXPECT_EQ(whole, by_tiles);
}

TEST_P(Int8Test, StoredValuesKeepTheirScales) {
  SCOPED_TRACE(Trace());
  ExpectStoredInt8KeepsItsScales<float>(Run(), random_);
}

TEST_P(Int8Test, ValuesThatAreNotFiniteMakeTheirRowOrColumnNaNAndNoOther) {
  SCOPED_TRACE(Trace());
  ExpectInt8KeepsWhatIsNotFiniteApart<float>(Run(), random_);
}

SLUICE_EVERY_UNIT(Int8Test);

}  // namespace
}  // namespace sluice::kernels
