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

using Int8Test = QuantizedTest;

TEST_P(Int8Test, ProductsHaveTheBitsOfTheReference) {
  for (const Shape& shape : Shapes(random_)) {
    const auto [rows, k, n] = shape;
    SCOPED_TRACE(Trace() << ", " << rows << " x " << k << " x " << n);
    const bool biased = random_() % 2 != 0, accumulate = random_() % 2 != 0;
    const Matrices weights(Two(), random_, 1, k, n, random_() % 2 != 0);
    const std::vector<float> x = RandomRows(random_, rows, k), bias = RandomFloats(random_, n);
    const std::vector<float> before = RandomFloats(random_, rows * n);
    const Rows quantized(Two(), x, rows, k);
    std::vector<float> out = before;
    Gemm(Two(), weights.packed, rows,
         {.x = nullptr,
          .ldx = 0,
          .bias = biased ? bias.data() : nullptr,
          .bias_stride = 0,
          .out = out.data(),
          .ldo = n,
          .accumulate = accumulate,
          .quantized = quantized.rows()});
    const std::vector<Quantized> expected_rows = QuantizeEach(x, k);
    for (int64_t r = 0; r < rows; ++r) {
      ASSERT_TRUE(SameBits(quantized.rows().scales()[r], expected_rows[r].scale));
      for (int64_t c = 0; c < n; ++c) {
        float expected = Int8Product(expected_rows[r], weights.columns[c]);
        if (biased) expected = expected + bias[c];
        if (accumulate) expected = before[r * n + c] + expected;
        ASSERT_TRUE(SameBits(out[r * n + c], expected))
            << "row " << r << " column " << c << ": " << Bits(out[r * n + c]) << ", not "
            << Bits(expected);
      }
    }
  }
}

TEST_P(Int8Test, TheLargestSumsDoNotSaturate) {
  constexpr int64_t kDepth = 65536, kColumns = 5;  // the widest layer of a model
  std::vector<float> w(kDepth * kColumns), x(2 * kDepth, 1.0f);
  for (int64_t i = 0; i < std::ssize(w); ++i) w[i] = i % kColumns % 2 == 0 ? -3.0f : 3.0f;
  std::fill_n(x.begin() + kDepth, kDepth, -1.0f);
  const PackedWeights packed =
      PackedWeights::PackInt8(One(), {w.data(), DType::kF32, 1, kDepth, kColumns, false});
  const Rows rows(One(), x, 2, kDepth);
  std::vector<float> out(2 * kColumns);
  Gemm(One(), packed, 2, {nullptr, 0, nullptr, 0, out.data(), kColumns, false, rows.rows()});
  const float sum = 127.0f * 127.0f * kDepth * (1.0f / 127.0f) * (3.0f / 127.0f);
  for (int64_t c = 0; c < kColumns; ++c) {
    const float expected = c % 2 == 0 ? -sum : sum;
    EXPECT_NEAR(out[c], expected, sum * 1e-6f);
    EXPECT_NEAR(out[kColumns + c], -expected, sum * 1e-6f);
  }
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
  constexpr int64_t kRows = 9, kK = 130, kN = 37;
  std::vector<int8_t> stored(kN * kK);
  for (int8_t& value : stored) value = static_cast<int8_t>(random_());  // -128 among them
  const std::vector<float> scales = RandomFloats(random_, kN);
  const PackedWeights packed =
      PackedWeights::PackInt8(One(), {stored.data(), DType::kI8, 1, kK, kN, true, scales.data()});
  const std::vector<float> x = RandomRows(random_, kRows, kK);
  const Rows quantized(One(), x, kRows, kK);
  std::vector<float> out(kRows * kN);
  Gemm(One(), packed, kRows, {nullptr, 0, nullptr, 0, out.data(), kN, false, quantized.rows()});
  const std::vector<Quantized> rows = QuantizeEach(x, kK);
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < kN; ++c) {
      const Quantized column = {{&stored[c * kK], &stored[c * kK] + kK}, scales[c]};
      ASSERT_TRUE(SameBits(out[r * kN + c], Int8Product(rows[r], column))) << r << " " << c;
    }
  }
}

TEST_P(Int8Test, ValuesThatAreNotFiniteMakeTheirRowOrColumnNaNAndNoOther) {
  constexpr int64_t kK = 66, kN = 35, kRows = 20;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> x = RandomFloats(random_, kRows * kK), w = RandomFloats(random_, kN * kK);
  x[3 * kK + 65] = kPoison;
  x[4 * kK] = -kInfinity;
  w[7 * kK + 1] = kInfinity;
  std::fill_n(&x[5 * kK], kK, 0.0f);
  std::fill_n(&x[6 * kK], kK, 0x1p-140f);  // counts as zeros
  const PackedWeights packed =
      PackedWeights::PackInt8(One(), {w.data(), DType::kF32, 1, kK, kN, true});
  const Rows quantized(One(), x, kRows, kK);
  std::vector<float> out(kRows * kN);
  Gemm(One(), packed, kRows, {nullptr, 0, nullptr, 0, out.data(), kN, false, quantized.rows()});
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < kN; ++c) {
      const float y = out[r * kN + c];
      EXPECT_EQ(std::isnan(y), r == 3 || r == 4 || c == 7) << r << " " << c;
      EXPECT_TRUE((r != 5 && r != 6) || c == 7 || y == 0) << r << " " << c;
    }
  }
}

SLUICE_EVERY_PROFILE(Int8Test);

}  // namespace
}  // namespace sluice::kernels
