// How device code multiplies and rounds, and the faults in such code that the emulator catches.
#include <cmath>
#include <random>

#include "kernels/cuda/bfloat16.h"
#include "kernels/simt/product_sums.h"
#include "tests/kernels/simt/planted_fixture.h"
#include "tests/support/table.h"

namespace sluice::kernels::cuda::planted {
namespace {

using testing::Each;
using testing::HasSubstr;

using PlantedNumbersTest = PlantedTest;

TEST_P(PlantedNumbersTest, MatricesAreLoadedPlainAndTransposed) {
  std::vector<uint16_t> in(256);
  std::iota(in.begin(), in.end(), uint16_t{1000});
  for (const bool transposed : {false, true}) {
    auto* const out = lab_.Room<uint32_t>(128);
    LoadRows(lab_.stream(), lab_.Put(in), Rows::kWritten, transposed, out);
    const std::vector<uint32_t> got = lab_.Get(out, 128);
    for (int lane = 0; lane < 32; ++lane) {
      for (int matrix = 0; matrix < 4; ++matrix) {
        for (int half = 0; half < 2; ++half) {
          const int g = lane / 4, number = lane % 4 * 2 + half;
          const int place = transposed ? 8 * number + g : 8 * g + number;
          EXPECT_EQ(got[lane * 4 + matrix] >> 16 * half & 0xFFFF, in[64 * matrix + place])
              << "lane " << lane << ", matrix " << matrix << (transposed ? " transposed" : "");
        }
      }
    }
  }
}

TEST_P(PlantedNumbersTest, AMatrixWhoseRowsOtherLanesWroteWithoutABarrierIsCaught) {
  LoadRows(lab_.stream(), lab_.Put(std::vector<uint16_t>(256, 1)), Rows::kWithoutBarrier, false,
           lab_.Room<uint32_t>(128));
  EXPECT_THAT(Fault(), AllOf(HasSubstr("kernel LoadRows"), HasSubstr("with no barrier between")));
}

TEST_P(PlantedNumbersTest, ARowOfAMatrixThatIsNotAlignedIsCaught) {
  LoadRows(lab_.stream(), lab_.Put(std::vector<uint16_t>(256, 1)), Rows::kNotAligned, true,
           lab_.Room<uint32_t>(128));
  EXPECT_THAT(Fault(), HasSubstr("at an address that is not a multiple of"));
}

TEST_P(PlantedNumbersTest, ARowOfAMatrixInGlobalMemoryIsCaught) {
  LoadRows(lab_.stream(), lab_.Put(std::vector<uint16_t>(256, 1)), Rows::kInGlobalMemory, false,
           lab_.Room<uint32_t>(128));
  EXPECT_THAT(Fault(), HasSubstr("loads a row of a matrix that is not in shared memory"));
}

TEST_P(PlantedNumbersTest, PowersOfTwoAreExactForIntegersAndCloseForOthers) {
  std::mt19937_64 random(GetParam());
  std::uniform_real_distribution<float> uniform(-20, 20);
  std::vector<float> in = {0.0f, -0.0f, 1, -3, -126, 127, 200, -INFINITY, INFINITY, NAN};
  while (in.size() < 32) in.push_back(uniform(random));
  float* out = lab_.Room<float>(32);
  PowersOfTwo(lab_.stream(), lab_.Put(in), false, out);
  const std::vector<float> got = lab_.Get(out, 32);
  for (int i = 0; i < 9; ++i) EXPECT_EQ(got[i], std::exp2(in[i])) << in[i];
  EXPECT_TRUE(std::isnan(got[9]));
  for (int i = 10; i < 32; ++i) {
    const double exact = std::exp2(static_cast<double>(in[i]));
    EXPECT_NEAR(got[i], exact, exact * 0x1p-22) << in[i];
  }
}

// The result would be 1 if powers that are subnormal were not zero.
TEST_P(PlantedNumbersTest, RelianceOnASubnormalPowerOfTwoIsCaught) {
  float* out = lab_.Room<float>(32);
  PowersOfTwo(lab_.stream(), lab_.Put(std::vector<float>(32, -126)), true, out);
  EXPECT_THAT(lab_.Get(out, 32), Each(1));
  PowersOfTwo(lab_.stream(), lab_.Put(std::vector<float>(32, -126.5f)), true, out);
  EXPECT_THAT(lab_.Get(out, 32), Each(testing::IsNan()));
}

TEST_P(PlantedNumbersTest, PairsAreRoundedLikeSingleNumbers) {
  std::mt19937_64 random(GetParam());
  std::vector<float> in = {1 + 0x1p-8f, 1 + 0x1.8p-7f, -INFINITY, 3e38f, 3.4e38f, -0.0f};
  while (in.size() < 64) {
    const auto any = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (!std::isnan(any)) in.push_back(any);
  }
  auto* const out = lab_.Room<uint32_t>(32);
  RoundToPairs(lab_.stream(), lab_.Put(in), out);
  const std::vector<uint32_t> got = lab_.Get(out, 32);
  for (int i = 0; i < 64; ++i) {
    EXPECT_EQ(got[i / 2] >> 16 * (i % 2) & 0xFFFF, RoundToBFloat16(in[i]).bits) << in[i];
  }
}

TEST_P(PlantedNumbersTest, FragmentsMultiplyAsMatrices) {
  std::mt19937_64 random(GetParam());
  std::vector<uint16_t> a(256), b(128);
  const auto small = [&] { return static_cast<float>(static_cast<int>(random() % 17) - 8); };
  const auto bits = [](float v) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(v) >> 16); };
  std::vector<float> x(256), y(128);
  for (int i = 0; i < 256; ++i) a[i] = bits(x[i] = small());
  for (int i = 0; i < 128; ++i) b[i] = bits(y[i] = small());
  float* d = lab_.Room<float>(128);
  Multiply(lab_.stream(), lab_.Put(a), lab_.Put(b), d);
  const std::vector<float> got = lab_.Get(d, 128);
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      float sum = 0;
      for (int k = 0; k < 16; ++k) sum += x[row * 16 + k] * y[k * 8 + column];
      EXPECT_EQ(got[row * 8 + column], sum) << row << ", " << column;
    }
  }
}

TEST_P(PlantedNumbersTest, FragmentsOfInt8MultiplyAsMatricesOfInt8) {
  std::mt19937_64 random(GetParam());
  std::vector<int8_t> a(16 * 32), b(32 * 8);
  for (auto* const values : {&a, &b}) {
    // Some values are the least; their products are the largest.
    for (int8_t& v : *values) v = random() % 4 == 0 ? -128 : static_cast<int8_t>(random());
  }
  auto* const d = lab_.Room<int32_t>(128);
  MultiplyInt8(lab_.stream(), lab_.Put(a), lab_.Put(b), /*some_return=*/false, d);
  const std::vector<int32_t> got = lab_.Get(d, 128);
  for (int i = 0; i < 128; ++i) {
    int32_t sum = 0;
    for (int k = 0; k < 32; ++k) sum += a[i / 8 * 32 + k] * b[k * 8 + i % 8];
    EXPECT_EQ(got[i], sum) << i / 8 << ", " << i % 8;
  }
}

TEST_P(PlantedNumbersTest, AProductInInt8ThatLanesDoNotReachIsCaught) {
  MultiplyInt8(lab_.stream(), lab_.Put(std::vector<int8_t>(512)),
               lab_.Put(std::vector<int8_t>(256)), /*some_return=*/true, lab_.Room<int32_t>(128));
  EXPECT_THAT(Fault(), HasSubstr("has returned"));
}

// The operands of MultiplyByGroup: small integers, so that sums are exact.
struct GroupMatrices {
  explicit GroupMatrices(std::mt19937_64& random) {
    const auto draw = [&](std::vector<float>& values) {
      std::vector<uint16_t> bits;
      for (float& value : values) {
        value = static_cast<float>(static_cast<int>(random() % 17) - 8);
        bits.push_back(RoundToBFloat16(value).bits);
      }
      return bits;
    };
    a = draw(x);
    b = draw(y);
  }
  static constexpr int kRows = 64, kDepth = 32, kColumns = 128;
  std::vector<float> x = std::vector<float>(kRows * kDepth);
  std::vector<float> y = std::vector<float>(kDepth * kColumns);
  std::vector<uint16_t> a, b;
};

TEST_P(PlantedNumbersTest, AWarpgroupMultipliesMatrices) {
  std::mt19937_64 random(GetParam());
  const GroupMatrices m(random);
  float* d = lab_.Room<float>(GroupMatrices::kRows * GroupMatrices::kColumns);
  for (const GroupFault none : {GroupFault::kNone, GroupFault::kNoneInBulk,
                                GroupFault::kNoneByColumns, GroupFault::kNoneByFragments}) {
    MultiplyByGroup(lab_.stream(), lab_.Put(m.a), lab_.Put(m.b), none, d);
    const auto got = lab_.Get(d, GroupMatrices::kRows * GroupMatrices::kColumns);
    for (int row = 0; row < GroupMatrices::kRows; ++row) {
      for (int column = 0; column < GroupMatrices::kColumns; ++column) {
        float sum = 0;
        for (int k = 0; k < GroupMatrices::kDepth; ++k) {
          sum += m.x[row * GroupMatrices::kDepth + k] * m.y[k * GroupMatrices::kColumns + column];
        }
        ASSERT_EQ(got[row * GroupMatrices::kColumns + column], sum) << row << ", " << column;
      }
    }
  }
  EXPECT_EQ(Fault(), "");
}

TEST_P(PlantedNumbersTest, FaultsOfAWarpgroupAreCaught) {
  const std::pair<GroupFault, const char*> kFaults[] = {
      {GroupFault::kNotShared, "has not shared with products before a barrier"},
      {GroupFault::kSharedTooLate, "has not shared with products before a barrier"},
      {GroupFault::kNotBegun, "multiplies without BeginProducts"},
      {GroupFault::kChangedTooEarly, "overwrites data that block 0, thread"},
      {GroupFault::kFragmentChanged, "multiplies operands that change before it waits"},
      {GroupFault::kChangedByOthers, "with no barrier between"},
      {GroupFault::kNamedTooEarly, "names sums in a wait that leaves their product queued"},
      {GroupFault::kNotWaited, "ends before its products have been waited for"}};
  for (const auto& [fault, text] : kFaults) {
    DeviceLab lab(simt::MakeSimtDevice({.seed = GetParam()}));
    std::mt19937_64 random(GetParam());
    const GroupMatrices m(random);
    MultiplyByGroup(lab.stream(), lab.Put(m.a), lab.Put(m.b), fault, lab.Room<float>(64 * 128));
    EXPECT_THAT(std::string(lab.Finish().message()), HasSubstr(text)) << static_cast<int>(fault);
  }
}

TEST_P(PlantedNumbersTest, SumsOfAWarpgroupAreNaNBeforeTheWait) {
  std::mt19937_64 random(GetParam());
  const GroupMatrices m(random);
  float* d = lab_.Room<float>(64 * 128);
  MultiplyByGroup(lab_.stream(), lab_.Put(m.a), lab_.Put(m.b), GroupFault::kUsedTooEarly, d);
  EXPECT_TRUE(std::isnan(lab_.Get(d, 1)[0]));
}

// Computes one element by MultiplyAdd: the sum of the terms. Each term is a product with 1.
float SumByProduct(const std::vector<float>& terms) {
  DeviceLab lab(simt::MakeSimtDevice());
  std::vector<uint16_t> a(256), b(128);
  for (size_t i = 0; i < terms.size(); ++i) {
    a[i] = RoundToBFloat16(terms[i]).bits;
    b[i * 8] = RoundToBFloat16(1).bits;
  }
  float* d = lab.Room<float>(128);
  Multiply(lab.stream(), lab.Put(a), lab.Put(b), d);
  return lab.Get(d, 1)[0];
}
float SumByProduct(simt::ProductSums sums, const std::vector<float>& terms) {
  const simt::WithProductSums with(sums);
  return SumByProduct(terms);
}

struct ProductSumRow {
  const char* name;
  std::vector<float> terms;
  float hopper, ampere, rounded;
};
class ProductSumTable : public TableTest<ProductSumRow> {};

TEST_P(ProductSumTable, SumsEqualTensorCores) {
  using enum simt::ProductSums;
  EXPECT_EQ(SumByProduct(kHopper, row().terms), row().hopper);
  EXPECT_EQ(SumByProduct(kAmpere, row().terms), row().ampere);
  EXPECT_EQ(SumByProduct(kRounded, row().terms), row().rounded);
}

// Returns `first` and then `count` times `term`.
std::vector<float> Terms(float first, int count, float term) {
  std::vector<float> terms(count + 1, term);
  terms[0] = first;
  return terms;
}

constexpr float kUlp = 0x1p-23f;  // of 1
const ProductSumRow kProductSumRows[] = {
    {.name = "SmallIntegersAreExact",
     .terms = Terms(100, 15, -3),
     .hopper = 55,
     .ampere = 55,
     .rounded = 55},
    {.name = "WhatRoundsUpIsTruncated",
     .terms = {1, 1.5f * 0x1p-24f},
     .hopper = 1,
     .ampere = 1,
     .rounded = 1 + kUlp},
    {.name = "NegativeTermsAreTruncatedTowardsZero",
     .terms = {-1, -1.5f * 0x1p-24f},
     .hopper = -1,
     .ampere = -1,
     .rounded = -1 - kUlp},
    {.name = "TermsBelowTheExtraBitsAreLost",
     .terms = Terms(1, 15, 0x1p-26f),
     .hopper = 1,
     .ampere = 1,
     .rounded = 1},
    {.name = "TwoExtraBitsAreOneMoreThanAnEarlierGpuHas",
     .terms = Terms(1, 8, 0x1p-25f),
     .hopper = 1 + 2 * kUlp,
     .ampere = 1,
     .rounded = 1},
    {.name = "AllTermsAreAlignedWithTheLargestWhereverItStands",
     .terms = {0x1p-26f, 0x1p-26f, 1},
     .hopper = 1,
     .ampere = 1,
     .rounded = 1},
    {.name = "TheSumIsOfSixteenOrOfTwiceEight",
     .terms = {1, 0, 0, 0, 0, 0, 0, 0, -1, 0x1p-30f},
     .hopper = 0,
     .ampere = 0,
     .rounded = 0x1p-30f},
    {.name = "LargeTermsThatCancelTakeSmallOnesWithThem",
     .terms = {1, 0x1p-30f, 0, 0, 0, 0, 0, 0, -1},
     .hopper = 0,
     .ampere = 0,
     .rounded = 0},
    {.name = "ZerosDoNotAlign",
     .terms = {0, 0x1p-100f, 0x1p-130f},
     .hopper = 0x1p-100f,
     .ampere = 0x1p-100f,
     .rounded = 0x1p-100f},
    {.name = "SubnormalSumsAreKept",
     .terms = {0x1p-130f, 0x1p-133f},
     .hopper = 0x1p-130f + 0x1p-133f,
     .ampere = 0x1p-130f + 0x1p-133f,
     .rounded = 0x1p-130f + 0x1p-133f},
    {.name = "OverflowIsInfinite",
     .terms = Terms(0x1p127f, 15, 0x1p127f),
     .hopper = INFINITY,
     .ampere = INFINITY,
     .rounded = INFINITY},
    {.name = "InfinityStays",
     .terms = {1, -INFINITY},
     .hopper = -INFINITY,
     .ampere = -INFINITY,
     .rounded = -INFINITY},
};
SLUICE_TABLE(ProductSumTable, kProductSumRows);

TEST(ProductSumTest, SumsAreTruncatedUnlessATestChoosesOthers) {
  EXPECT_EQ(SumByProduct({1, 1.5f * 0x1p-24f}), 1);
  EXPECT_EQ(SumByProduct(Terms(1, 8, 0x1p-25f)), 1 + 2 * kUlp);
}

// The order of the terms of a product changes a rounded sum, but not a truncated one.
TEST(ProductSumTest, TruncatedSumsDoNotDependOnTheOrderOfTerms) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<float> uniform(-1, 1);
  int different = 0;
  for (int trial = 0; trial < 20; ++trial) {
    std::vector<float> terms(16);
    for (float& term : terms) term = std::ldexp(uniform(random), -static_cast<int>(random() % 20));
    const float sum = SumByProduct(simt::ProductSums::kHopper, terms);
    const float rounded = SumByProduct(simt::ProductSums::kRounded, terms);
    std::shuffle(terms.begin(), terms.end(), random);
    EXPECT_EQ(SumByProduct(simt::ProductSums::kHopper, terms), sum);
    if (SumByProduct(simt::ProductSums::kRounded, terms) != rounded) ++different;
  }
  EXPECT_GT(different, 0);
}

TEST(ProductSumTest, ASumThatIsNotANumberStaysSo) {
  for (const auto sums : {simt::ProductSums::kHopper, simt::ProductSums::kAmpere}) {
    EXPECT_TRUE(std::isnan(SumByProduct(sums, {1, NAN})));
    EXPECT_TRUE(std::isnan(SumByProduct(sums, {INFINITY, -INFINITY})));
  }
}

// Sums of terms with usual exponents are computed in float, and all others bit by bit. A common
// factor of all terms that is a power of two must not change the result.
TEST(ProductSumTest, SumsInFloatAreEqualToSumsBitByBit) {
  std::mt19937_64 random(8);
  const auto draw = [&] {
    const int significand = random() % 8 == 0 ? 0 : static_cast<int>(random() % 511) - 255;
    return std::ldexp(static_cast<float>(significand), -static_cast<int>(random() % 16));
  };
  for (const auto sums : {simt::ProductSums::kHopper, simt::ProductSums::kAmpere}) {
    const simt::WithProductSums with(sums);
    for (int trial = 0; trial < 10000; ++trial) {
      simt::Factors a, b, small_a, small_b;
      for (int i = 0; i < simt::Factors::kCount; ++i) {
        const float x = draw(), y = draw();
        a.Set(i, x);
        b.Set(i, y);
        small_a.Set(i, std::ldexp(x, -40));
        small_b.Set(i, std::ldexp(y, -50));
      }
      const float c = draw() * draw();
      ASSERT_EQ(simt::AddProducts(a, b, c),
                std::ldexp(simt::AddProducts(small_a, small_b, std::ldexp(c, -90)), 90));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, PlantedNumbersTest, testing::Values(1, 2, 3, 4, 5));

}  // namespace
}  // namespace sluice::kernels::cuda::planted
