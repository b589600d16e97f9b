#include "kernels/cpu/gemm.h"

#include <atomic>
#include <bit>
#include <cstring>

#include "kernels/reference/linear.h"
#include "tests/kernels/cpu/op_test.h"
#include "tests/support/invariance.h"

namespace sluice::kernels {
namespace {

// Weights in a stored dtype, at an unaligned address, and their values in double as [matrices, k,
// n].
struct Weights {
  std::vector<char> stored;
  std::vector<double> values;
  WeightSource source;
};

Weights MakeWeights(std::mt19937_64& random, DType dtype, int64_t matrices, int64_t k, int64_t n,
                    bool transposed) {
  const int64_t count = matrices * k * n, size = DTypeBytes(dtype);
  Weights weights;
  weights.stored.resize(static_cast<size_t>(1 + count * size));
  char* data = weights.stored.data() + 1;
  for (int64_t i = 0; i < count; ++i) {
    const float value = RandomFloats(random, 1)[0];
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    if (dtype == DType::kBF16) bits >>= 16;
    if (dtype == DType::kF16) {  // any half with magnitude below 2
      bits = static_cast<uint32_t>(random()) & 0xBFFFu;
    }
    std::memcpy(data + i * size, &bits, static_cast<size_t>(size));
  }
  weights.values.resize(static_cast<size_t>(count));
  for (int64_t m = 0; m < matrices; ++m) {
    for (int64_t row = 0; row < k; ++row) {
      for (int64_t col = 0; col < n; ++col) {
        const int64_t at = transposed ? col * k + row : row * n + col;
        weights.values[(m * k + row) * n + col] = LoadAsFloat(data, dtype, m * k * n + at);
      }
    }
  }
  weights.source = {data, dtype, matrices, k, n, transposed};
  return weights;
}

// Returns x as the product reads it: rounded if the profile multiplies in bf16.
std::vector<double> Met(Profile profile, const PackedWeights& weights, std::span<const float> x) {
  std::vector<double> met = ToDouble(x);
  if (!MultipliesInBf16(profile) || weights.format() != WeightFormat::kBF16) return met;
  for (double& value : met) {
    const int exponent = std::ilogb(value) - 7;  // of a bf16's last bit
    if (value != 0) value = std::ldexp(std::nearbyint(std::ldexp(value, -exponent)), exponent);
  }
  return met;
}

struct Shape {
  int64_t k, n;
};
// The last shape exceeds the part of k that is rounded at once.
constexpr Shape kShapes[] = {{1, 1},    {3, 5},     {7, 17},    {16, 16}, {33, 31},  {64, 48},
                             {100, 70}, {257, 129}, {2049, 33}, {5, 300}, {5000, 40}};

class GemmTest : public OpTest {};

TEST_P(GemmTest, EqualsTheReferenceForEveryDTypeBiasAndStride) {
  std::mt19937_64 random(11);
  int variant = 0;
  for (const Shape& shape : kShapes) {
    for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      const bool transposed = (++variant & 1) != 0, biased = (variant & 2) != 0,
                 accumulate = (variant & 4) != 0;
      const int64_t k = shape.k, n = shape.n, rows = RandomInt(random, 1, 40);
      SCOPED_TRACE(testing::Message()
                   << rows << " x " << k << " x " << n << " variant " << variant);
      const Weights weights = MakeWeights(random, dtype, 1, k, n, transposed);
      const PackedWeights packed = PackedWeights::Pack(Two(), weights.source);
      const std::vector<float> x = RandomFloats(random, rows * k), bias = RandomFloats(random, n);

      // The gaps between the rows hold NaN and must stay unchanged.
      const int64_t ldx = k + 3, ldo = n + 2;
      std::vector<float> x_gaps(rows * ldx, kPoison), out_gaps(rows * ldo, kPoison);
      const std::vector<float> before = RandomFloats(random, rows * n);
      for (int64_t r = 0; r < rows; ++r) {
        std::copy_n(&x[r * k], k, &x_gaps[r * ldx]);
        if (accumulate) std::copy_n(&before[r * n], n, &out_gaps[r * ldo]);
      }
      Gemm(Two(), packed, rows,
           {x_gaps.data(), ldx, biased ? bias.data() : nullptr, 0, out_gaps.data(), ldo,
            accumulate});

      const std::vector<int32_t> first_matrix(rows, 0);
      std::vector<double> expected =
          reference::PositionWise(Met(GetParam(), packed, x), first_matrix, weights.values,
                                  biased ? ToDouble(bias) : std::vector<double>{}, false, k, n);
      std::vector<float> out;
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < n; ++c) {
          out.push_back(out_gaps[r * ldo + c]);
          if (accumulate) expected[r * n + c] += before[r * n + c];
        }
        EXPECT_TRUE(std::isnan(out_gaps[r * ldo + n]) && std::isnan(out_gaps[r * ldo + n + 1]));
      }
      EXPECT_TRUE(Matches(Op::kGemm, out, expected));
    }
  }
}

TEST_P(GemmTest, GroupsUseTheirPositionsMatrixAndLeaveOtherRowsUnchanged) {
  std::mt19937_64 random(12);
  constexpr int64_t kMatrices = 9, kK = 37, kN = 50;
  const Weights weights = MakeWeights(random, DType::kF32, kMatrices, kK, kN, false);
  const PackedWeights packed = PackedWeights::Pack(One(), weights.source);
  const std::vector<float> bias = RandomFloats(random, kMatrices * kN);
  for (bool position_bias : {false, true}) {
    std::vector<RowGroup> groups;
    int32_t rows = 2;  // two rows in no group, like the rows between groups
    for (int32_t position : {0, 1, 4, 7, 8}) {
      const int32_t count = static_cast<int32_t>(RandomInt(random, 0, 90));
      groups.push_back({position, rows, count});
      rows += count + 1;
    }
    std::vector<float> x = RandomFloats(random, rows * kK), out(rows * kN, kPoison);
    std::vector<bool> live(rows, false);
    for (const RowGroup& group : groups) {
      std::fill_n(live.begin() + group.first_row, group.count, true);
    }
    for (int32_t r = 0; r < rows; ++r) {
      if (!live[r]) std::fill_n(&x[r * kK], kK, kPoison);
    }
    GroupedGemm(Two(), packed, groups,
                {x.data(), kK, bias.data(), position_bias ? kN : 0, out.data(), kN, false});
    for (const RowGroup& group : groups) {
      const std::vector<int32_t> positions(group.count, group.matrix);
      const std::span<const float> in(&x[group.first_row * kK], group.count * kK);
      const std::vector<double> expected = reference::PositionWise(
          ToDouble(in), positions, weights.values, ToDouble(bias), position_bias, kK, kN);
      const auto from = out.begin() + group.first_row * kN;
      EXPECT_TRUE(Matches(Op::kGemm, std::vector(from, from + group.count * kN), expected));
    }
    for (int32_t r = 0; r < rows; ++r) {
      EXPECT_TRUE(live[r] || (std::isnan(out[r * kN]) && std::isnan(out[r * kN + kN - 1]))) << r;
    }
  }
}

// The groups of adapters have matrices of their own sizes. A group without one keeps its rows.
TEST_P(GemmTest, MatricesOfDifferentSizesGiveTheBitsOfTheirOwnProducts) {
  const uint64_t seed = 21;
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  constexpr int64_t kWidest = 80;
  for (const bool accumulate : {false, true}) {
    std::vector<Weights> sources;
    std::vector<PackedWeights> packed;
    std::vector<RowGroup> groups;
    int32_t rows = 1;
    for (int32_t i = 0; i < 12; ++i) {
      const DType dtype = random() % 2 == 0 ? DType::kF32 : DType::kBF16;
      sources.push_back(MakeWeights(random, dtype, 1, RandomInt(random, 1, kWidest),
                                    RandomInt(random, 1, kWidest), true));
      packed.push_back(PackedWeights::Pack(One(), sources.back().source));
      const auto count = static_cast<int32_t>(RandomInt(random, 0, 40));
      groups.push_back({(i * 7) % 12, rows, count});
      rows += count + i % 2;
    }
    const std::vector<float> x = RandomFloats(random, rows * kWidest);
    const std::vector<float> before = RandomFloats(random, rows * kWidest);
    std::vector<float> out = before, expected = before;
    const GemmArgs args = {x.data(), kWidest, nullptr, 0, out.data(), kWidest, accumulate};
    const auto weights_of = [&](const RowGroup& group) {
      return group.matrix == 5 ? nullptr : &packed[group.matrix];
    };
    GroupedGemm(Two(), weights_of, groups, args);
    for (const RowGroup& group : groups) {
      if (group.matrix == 5) continue;
      for (int32_t r = group.first_row; r < group.first_row + group.count; ++r) {
        Gemm(One(), packed[group.matrix], 1,
             {&x[r * kWidest], kWidest, nullptr, 0, &expected[r * kWidest], kWidest, accumulate});
      }
    }
    EXPECT_EQ(out, expected);
  }
}

// A change of the CPU quota changes the number of running threads during a step.
TEST_P(GemmTest, AChangeOfTheRunningThreadsDuringAProductChangesNoBits) {
  std::mt19937_64 random(22);
  constexpr int64_t kRows = 40, kK = 64, kN = 4096;
  constexpr int kThreads = 8, kFewThreads = 2;
  const Weights weights = MakeWeights(random, DType::kBF16, 1, kK, kN, true);
  const PackedWeights packed = PackedWeights::Pack(One(), weights.source);
  const std::vector<float> x = RandomFloats(random, kRows * kK);
  ThreadPool pool(kThreads);
  const RowGroup group = {.matrix = 0, .first_row = 0, .count = kRows};
  const auto multiply = [&](int threads, int later_threads) {
    std::vector<float> out(kRows * kN, kPoison);
    pool.SetRunning(threads);
    // The product is divided during the first two calls, and computed during the others.
    std::atomic<int> calls{0};
    const auto weights_of = [&](const RowGroup&) {
      if (++calls == 3) pool.SetRunning(later_threads);
      return &packed;
    };
    GroupedGemm({GetParam(), &pool}, weights_of, {&group, 1},
                {x.data(), kK, nullptr, 0, out.data(), kN, false});
    return out;
  };
  const std::vector<float> expected = multiply(kThreads, kThreads);
  EXPECT_TRUE(std::ranges::none_of(expected, [](float y) { return std::isnan(y); }));
  EXPECT_EQ(multiply(kThreads, kFewThreads), expected);
  EXPECT_EQ(multiply(kFewThreads, kThreads), expected);
}

TEST_P(GemmTest, GroupsSortedByPositionEqualTheEinsum) {
  std::mt19937_64 random(13);
  constexpr int64_t kBatch = 5, kLength = 7, kIn = 19, kOut = 23;
  const Weights weights = MakeWeights(random, DType::kF32, kLength, kIn, kOut, false);
  const PackedWeights packed = PackedWeights::Pack(One(), weights.source);
  const std::vector<float> x = RandomFloats(random, kBatch * kLength * kIn);  // [b, l, d]
  std::vector<float> sorted(x.size()), out(kBatch * kLength * kOut), by_sequence(out.size());
  std::vector<RowGroup> groups;
  for (int32_t l = 0; l < kLength; ++l) {
    groups.push_back({l, static_cast<int32_t>(l * kBatch), kBatch});
    for (int64_t b = 0; b < kBatch; ++b) {
      std::copy_n(&x[(b * kLength + l) * kIn], kIn, &sorted[(l * kBatch + b) * kIn]);
    }
  }
  GroupedGemm(One(), packed, groups, {sorted.data(), kIn, nullptr, 0, out.data(), kOut, false});
  for (int64_t l = 0; l < kLength; ++l) {
    for (int64_t b = 0; b < kBatch; ++b) {
      std::copy_n(&out[(l * kBatch + b) * kOut], kOut, &by_sequence[(b * kLength + l) * kOut]);
    }
  }
  EXPECT_TRUE(Matches(
      Op::kGemm, by_sequence,
      reference::PositionWiseEinsum(ToDouble(x), weights.values, kBatch, kLength, kIn, kOut)));
}

TEST_P(GemmTest, RowsDoNotDependOnTheirBatchOrOnThreads) {
  const DType dtype = MultipliesInBf16(GetParam()) ? DType::kBF16 : DType::kF32;
  for (const Shape& shape :
       {Shape{100, 70}, Shape{515, 129}, Shape{1, 40}, Shape{2048, 16}, Shape{5000, 8}}) {
    std::mt19937_64 random(14);
    const Weights weights = MakeWeights(random, dtype, 1, shape.k, shape.n, true);
    const PackedWeights packed = PackedWeights::Pack(One(), weights.source);
    const std::vector<float> x = RandomFloats(random, 70 * shape.k);
    const std::vector<float> bias = RandomFloats(random, shape.n);
    bool two = false;
    const RowsOp op = [&](std::span<const int32_t> rows) {
      std::vector<float> in, out(rows.size() * shape.n, 0.25f);
      for (int32_t row : rows) in.insert(in.end(), &x[row * shape.k], &x[row * shape.k] + shape.k);
      Gemm((two = !two) ? Two() : One(), packed, static_cast<int64_t>(rows.size()),
           {in.data(), shape.k, bias.data(), 0, out.data(), shape.n, true});
      return out;
    };
    EXPECT_TRUE(RowsAreInvariant(op)) << shape.k << " x " << shape.n;
  }
}

// Covers products, sums and weights that are denormal.
TEST_P(GemmTest, RowsOfTinyValuesDoNotDependOnTheirBatch) {
  std::mt19937_64 random(46);
  constexpr int64_t kRows = 20, kInner = 100, kOuter = 70;
  std::vector<uint16_t> stored;
  for (const float value : RandomFloats(random, kInner * kOuter, 0x1p-62f)) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    stored.push_back(static_cast<uint16_t>(random() % 20 == 0 ? bits >> 16 & 0x807F : bits >> 16));
  }
  const std::vector<float> x = RandomFloats(random, kRows * kInner, 0x1p-63f);
  const PackedWeights weights =
      PackedWeights::Pack(One(), {stored.data(), DType::kBF16, 1, kInner, kOuter, false});
  const auto multiply = [&](int64_t first, int64_t rows, float* out) {
    Gemm(One(), weights, rows,
         {.x = x.data() + first * kInner,
          .ldx = kInner,
          .bias = nullptr,
          .bias_stride = 0,
          .out = out,
          .ldo = kOuter,
          .accumulate = false});
  };
  std::vector<float> together(kRows * kOuter), alone(kRows * kOuter);
  multiply(0, kRows, together.data());
  for (int64_t row = 0; row < kRows; ++row) multiply(row, 1, alone.data() + row * kOuter);
  EXPECT_EQ(alone, together);
  EXPECT_TRUE(std::any_of(alone.begin(), alone.end(), [](float y) { return y != 0; }));
}

TEST_P(GemmTest, RowsDoNotDependOnTheirGroups) {
  std::mt19937_64 random(15);
  constexpr int64_t kMatrices = 4, kK = 130, kN = 40;
  const Weights weights = MakeWeights(random, DType::kBF16, kMatrices, kK, kN, false);
  const PackedWeights packed = PackedWeights::Pack(One(), weights.source);
  const std::vector<float> x = RandomFloats(random, 70 * kK);
  const RowsOp op = [&](std::span<const int32_t> rows) {  // row r is at position r % kMatrices
    std::vector<size_t> order;
    std::vector<RowGroup> groups;
    std::vector<float> in, sorted(rows.size() * kN), out(sorted.size());
    for (int32_t p = 0; p < kMatrices; ++p) {
      const int32_t first = static_cast<int32_t>(order.size());
      for (size_t i = 0; i < rows.size(); ++i) {
        if (rows[i] % kMatrices != p) continue;
        order.push_back(i);
        in.insert(in.end(), &x[rows[i] * kK], &x[rows[i] * kK] + kK);
      }
      const int32_t count = static_cast<int32_t>(order.size()) - first;
      if (count > 0) groups.push_back({p, first, count});
    }
    GroupedGemm(Two(), packed, groups, {in.data(), kK, nullptr, 0, sorted.data(), kN, false});
    for (size_t i = 0; i < order.size(); ++i) std::copy_n(&sorted[i * kN], kN, &out[order[i] * kN]);
    return out;
  };
  EXPECT_TRUE(RowsAreInvariant(op));
}

// Random bf16 bits, including zeros and denormals of both signs, and the same values as f32.
struct TwiceStored {
  std::vector<uint16_t> bf16;
  std::vector<float> f32;

  TwiceStored(std::mt19937_64& random, int64_t count) : bf16(count), f32(count) {
    constexpr uint16_t kTiny[] = {0x0000, 0x8000, 0x0001, 0x807F};
    for (uint16_t& bits : bf16) {
      const uint64_t drawn = random();
      const uint16_t ordinary = static_cast<uint16_t>(0x3E00 + (drawn & 0x80FF));
      bits = (drawn >> 32) % 8 != 0 ? ordinary : kTiny[(drawn >> 16) % 4];
    }
    ConvertToFloat(bf16.data(), DType::kBF16, 0, count, f32.data());
  }
};

TEST_P(GemmTest, BF16PanelsGiveTheBitsOfF32Panels) {
  if (MultipliesInBf16(GetParam())) return;  // the rows are rounded for bf16 panels only
  for (const Shape& shape : kShapes) {
    for (const bool transposed : {false, true}) {
      const uint64_t seed = 100 + static_cast<uint64_t>(2 * shape.k + transposed);
      SCOPED_TRACE(testing::Message() << shape.k << " x " << shape.n << " transposed " << transposed
                                      << " seed " << seed);
      std::mt19937_64 random(seed);
      constexpr int64_t kMatrices = 2, kMaxRows = 28;
      const int64_t k = shape.k, n = shape.n;
      const TwiceStored weights(random, kMatrices * k * n);
      const PackedWeights narrow = PackedWeights::Pack(
          One(), {weights.bf16.data(), DType::kBF16, kMatrices, k, n, transposed});
      const PackedWeights wide = PackedWeights::Pack(
          One(), {weights.f32.data(), DType::kF32, kMatrices, k, n, transposed});
      EXPECT_EQ(narrow.format(), WeightFormat::kBF16);
      EXPECT_EQ(wide.format(), WeightFormat::kF32);
      EXPECT_EQ(2 * narrow.bytes(), wide.bytes());
      const std::vector<float> x = RandomFloats(random, (kMaxRows + 3) * k);
      const std::vector<float> bias = RandomFloats(random, kMatrices * n);
      const std::vector<float> before = RandomFloats(random, (kMaxRows + 3) * n);
      for (int32_t rows = 1; rows <= kMaxRows; ++rows) {
        const RowGroup groups[] = {{0, 0, rows}, {1, rows, 3}};
        std::vector<float> from_narrow = before, from_wide = before;
        const GemmArgs args = {x.data(), k, bias.data(), n, from_narrow.data(), n, rows % 2 == 0};
        GemmArgs wide_args = args;
        wide_args.out = from_wide.data();
        GroupedGemm(Two(), narrow, groups, args);
        GroupedGemm(One(), wide, groups, wide_args);
        ASSERT_EQ(std::memcmp(from_narrow.data(), from_wide.data(), before.size() * sizeof(float)),
                  0)
            << rows << " rows";
      }
    }
  }
}

TEST_P(GemmTest, PackedPanelsAreAlignedAndCounted) {
  const std::vector<float> data(3 * 5, 1.0f);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const PackedWeights packed = PackedWeights::Pack(One(), {data.data(), dtype, 1, 3, 5, false});
    EXPECT_EQ(reinterpret_cast<uintptr_t>(packed.panels(0, 0)) % 64, 0u);
    EXPECT_GE(packed.bytes(), 3 * 5 * (dtype == DType::kBF16 ? 2 : 4));
    EXPECT_EQ(packed.k(), 3);
    EXPECT_EQ(packed.n(), 5);
    EXPECT_EQ(packed.matrices(), 1);
  }
}

SLUICE_EVERY_PROFILE(GemmTest);

}  // namespace
}  // namespace sluice::kernels
