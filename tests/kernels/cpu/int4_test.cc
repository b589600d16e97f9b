// Products in int4 have the bits of the reference in integers, on every unit, in any batch. Each
// suite prints its seed.
#include <limits>

#include "kernels/cpu/gemm.h"
#include "kernels/reference/int8.h"
#include "tests/kernels/cpu/quantized_fixture.h"
#include "tests/support/invariance.h"

namespace sluice::kernels {
namespace {

using reference::Int4Column;
using reference::Int4Product;
using reference::QuantizeInt4;
using Int4Test = QuantizedTest;

int64_t RandomGroup(std::mt19937_64& random) { return int64_t{32} << random() % 3; }

// Matrices quantised as they are packed.
struct Matrices {
  std::vector<Int4Column> columns;  // [matrices * n]
  PackedWeights packed;

  Matrices(const Context& context, std::mt19937_64& random, int64_t matrices, int64_t k, int64_t n,
           int64_t group) {
    const bool transposed = random() % 2 != 0;
    const std::vector<float> values = RandomRows(random, matrices * n, k);
    std::vector<float> stored(values.size());
    for (int64_t i = 0; i < matrices * n; ++i) {
      columns.push_back(QuantizeInt4({&values[i * k], static_cast<size_t>(k)}, group));
      for (int64_t row = 0; row < k; ++row) {
        const int64_t base = i / n * k * n;
        stored[base + (transposed ? i % n * k + row : row * n + i % n)] = values[i * k + row];
      }
    }
    packed = PackedWeights::PackInt4(
        context, {stored.data(), DType::kF32, matrices, k, n, transposed}, group);
  }
};

// One matrix with random scales, zero points and codes; the codes are at least `first_code`.
struct Stored {
  std::vector<Int4Column> columns;
  PackedWeights packed;

  Stored(const Context& context, std::mt19937_64& random, int64_t k, int64_t n, int64_t group,
         bool zeros, uint8_t first_code = 0) {
    const int64_t groups = (k + group - 1) / group;
    std::vector<uint8_t> codes, zero_points;
    std::vector<float> scales;
    for (int64_t c = 0; c < n; ++c) {
      Int4Column column = {{}, group, RandomFloats(random, groups), {}};
      for (int64_t i = 0; i < k; ++i)
        column.codes.push_back(first_code + random() % (16 - first_code));
      for (int64_t g = 0; g < groups; ++g) column.zeros.push_back(zeros ? random() % 17 : 8);
      codes.insert(codes.end(), column.codes.begin(), column.codes.end());
      scales.insert(scales.end(), column.scales.begin(), column.scales.end());
      zero_points.insert(zero_points.end(), column.zeros.begin(), column.zeros.end());
      columns.push_back(std::move(column));
    }
    packed = PackedWeights::PackInt4(
        context, {k, n, group, codes.data(), scales.data(), zeros ? zero_points.data() : nullptr});
  }
};

// Checks the product of rows x, [rows, k], by one matrix against the reference.
void CheckProduct(const Context& context, std::mt19937_64& random, const PackedWeights& packed,
                  std::span<const Int4Column> columns, const std::vector<float>& x) {
  const int64_t k = packed.k(), n = packed.n(), rows = std::ssize(x) / k;
  const bool biased = random() % 2 != 0, accumulate = random() % 2 != 0;
  const std::vector<float> bias = RandomFloats(random, n);
  const std::vector<float> before = RandomFloats(random, rows * n);
  const Rows quantized(context, x, rows, k, true);
  std::vector<float> out = before;
  Gemm(
      context, packed, rows,
      {nullptr, 0, biased ? bias.data() : nullptr, 0, out.data(), n, accumulate, quantized.rows()});
  const std::vector<Quantized> expected_rows = QuantizeEach(x, k);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < n; ++c) {
      float expected = Int4Product(expected_rows[r], columns[c]);
      if (biased) expected = expected + bias[c];
      if (accumulate) expected = before[r * n + c] + expected;
      ASSERT_TRUE(SameBits(out[r * n + c], expected))
          << "row " << r << " column " << c << ": " << Bits(out[r * n + c]) << ", not "
          << Bits(expected);
    }
  }
}

TEST_P(Int4Test, ProductsHaveTheBitsOfTheReference) {
  for (const auto& [rows, k, n] : Shapes(random_)) {
    const int64_t group = RandomGroup(random_);
    SCOPED_TRACE(Trace() << ", " << rows << " x " << k << " x " << n << " by " << group);
    const Matrices weights(Two(), random_, 1, k, n, group);
    CheckProduct(Two(), random_, weights.packed, weights.columns, RandomRows(random_, rows, k));
  }
}

TEST_P(Int4Test, StoredCodesKeepTheirScalesAndZeroPoints) {
  for (const auto& [rows, k, n] : Shapes(random_)) {
    const int64_t group = RandomGroup(random_);
    const bool zeros = random_() % 4 != 0;
    SCOPED_TRACE(Trace() << ", " << rows << " x " << k << " x " << n << " by " << group);
    const Stored weights(One(), random_, k, n, group, zeros);
    CheckProduct(Two(), random_, weights.packed, weights.columns, RandomRows(random_, rows, k));
  }
}

TEST_P(Int4Test, TheLargestSumsAreExact) {
  for (const float largest : {1.0f, -1.0f}) {
    for (const int64_t rows : {1, 2, 5, 40}) {
      const int64_t group = RandomGroup(random_), k = 512, n = 21;
      SCOPED_TRACE(Trace() << ", " << rows << " rows of " << largest << " by " << group);
      const Stored weights(One(), random_, k, n, group, true, /*first_code=*/15);
      CheckProduct(One(), random_, weights.packed, weights.columns,
                   std::vector<float>(static_cast<size_t>(rows * k), largest));
    }
  }
}

TEST_P(Int4Test, GroupsUseTheirPositionsMatrix) {
  SCOPED_TRACE(Trace());
  const Matrices weights(Two(), random_, 5, 70, 45, 32);
  CheckGroups(Two(), random_, weights.packed, RandomFloats(random_, std::ssize(weights.columns)),
              /*sums=*/true, [&](const Quantized& row, int64_t column) {
                return Int4Product(row, weights.columns[column]);
              });
}

TEST_P(Int4Test, RowsDoNotDependOnTheirBatchOrOnThreads) {
  SCOPED_TRACE(Trace());
  for (const auto& [all, k, n] : {Shape{70, 100, 70}, Shape{70, 515, 129}, Shape{70, 2048, 16}}) {
    const Stored weights(One(), random_, k, n, RandomGroup(random_), random_() % 2 != 0);
    CheckInvariance(One(), Two(), random_, weights.packed, all, /*sums=*/true);
  }
}

TEST_P(Int4Test, ValuesThatAreNotFiniteMakeTheirRowOrColumnNaNAndNoOther) {
  constexpr int64_t kK = 66, kN = 35, kRows = 20;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> x = RandomFloats(random_, kRows * kK), w = RandomFloats(random_, kN * kK);
  x[3 * kK + 65] = kPoison;
  w[7 * kK + 1] = kInfinity;
  w[8 * kK + 65] = kPoison;
  std::fill_n(&w[9 * kK], kK, 0x1p-140f);  // counts as zeros
  std::fill_n(&x[5 * kK], kK, 0.0f);
  const PackedWeights packed =
      PackedWeights::PackInt4(One(), {w.data(), DType::kF32, 1, kK, kN, true}, 32);
  const Rows quantized(One(), x, kRows, kK, true);
  std::vector<float> out(kRows * kN);
  Gemm(One(), packed, kRows, {nullptr, 0, nullptr, 0, out.data(), kN, false, quantized.rows()});
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < kN; ++c) {
      const float y = out[r * kN + c];
      EXPECT_EQ(std::isnan(y), r == 3 || c == 7 || c == 8) << r << " " << c;
      EXPECT_TRUE((r != 5 && c != 9) || std::isnan(y) || y == 0) << r << " " << c;
    }
  }
}

TEST_P(Int4Test, MemoryIsHalfAByteAWeightAndAScaleAGroup) {
  const std::vector<float> w(256 * 128, 1.0f);
  const PackedWeights packed =
      PackedWeights::PackInt4(One(), {w.data(), DType::kF32, 1, 256, 128, true}, 64);
  EXPECT_EQ(packed.bytes(), 256 * 128 / 2 + 256 * 128 / 64 * 4);
}

SLUICE_EVERY_UNIT(Int4Test);

}  // namespace
}  // namespace sluice::kernels
