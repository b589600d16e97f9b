// The exponential of the inner kernels and the scalar logarithm.
#include "kernels/cpu/math.h"

#include <cstring>

#include "kernels/cpu/simd/dispatch.h"
#include "tests/kernels/cpu/op_test.h"

namespace sluice::kernels {
namespace {

double UlpsOff(float actual, double expected) {
  const float rounded = static_cast<float>(expected);
  const double ulp = std::nextafter(std::abs(rounded), kInfinity) - std::abs(rounded);
  return std::abs(actual - expected) / ulp;
}

class ExpTest : public OpTest {
 protected:
  std::vector<float> Exp(const std::vector<float>& x) {
    std::vector<float> w(x.size());
    simd::TableFor(GetParam())
        .exp_sum(x.data(), static_cast<int64_t>(x.size()), 0.0f, 1.0f, 0.0f, w.data());
    return w;
  }
};

TEST_P(ExpTest, IsWithinTwoUlpsDenormalsIncluded) {
  std::mt19937_64 random(51);
  for (float scale : {1e-6f, 0.5f, 10.0f, 103.0f}) {
    std::vector<float> x = RandomFloats(random, 20001, scale);
    for (float& value : x) value = std::min(value, 88.7f);
    const std::vector<float> e = Exp(x);
    for (size_t i = 0; i < x.size(); ++i)
      ASSERT_LE(UlpsOff(e[i], std::exp(double{x[i]})), 2) << x[i];
  }
}

TEST_P(ExpTest, HandlesZeroInfinityAndNaN) {
  const std::vector<float> e =
      Exp({0.0f, -0.0f, -kInfinity, -200.0f, kInfinity, 89.0f, 88.72f, kPoison});
  EXPECT_EQ(e[0], 1.0f);
  EXPECT_EQ(e[1], 1.0f);
  EXPECT_EQ(e[2], 0.0f);
  EXPECT_EQ(e[3], 0.0f);
  EXPECT_EQ(e[4], kInfinity);
  EXPECT_EQ(e[5], kInfinity);
  EXPECT_LT(e[6], kInfinity);
  EXPECT_TRUE(std::isnan(e[7]));
}

TEST_P(ExpTest, GivesTheSameBitsInBodyAndTail) {
  std::mt19937_64 random(52);
  const std::vector<float> x = RandomFloats(random, 64, 20.0f), all = Exp(x);
  for (size_t first = 0; first < 20; ++first) {
    for (size_t count = 1; first + count <= x.size(); ++count) {
      const std::vector<float> part =
          Exp(std::vector<float>(x.begin() + first, x.begin() + first + count));
      ASSERT_EQ(std::memcmp(part.data(), &all[first], count * sizeof(float)), 0);
    }
  }
}

SLUICE_EVERY_F32_PROFILE(ExpTest);

TEST(LogTest, IsWithinTwoUlps) {
  std::mt19937_64 random(53);
  std::uniform_real_distribution<double> exponent(-1070, 1023), near_one(0.5, 2.0);
  for (int i = 0; i < 100000; ++i) {
    const double x = i % 2 == 0 ? std::exp2(exponent(random)) : near_one(random);
    const double expected = std::log(x);
    const double ulp = std::nextafter(std::abs(expected), 1e300) - std::abs(expected);
    ASSERT_LE(std::abs(Log(x) - expected), 2 * ulp) << x;
  }
}

TEST(LogTest, HandlesZeroInfinityAndNaN) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(Log(1.0), 0.0);
  EXPECT_EQ(Log(0.0), -infinity);
  EXPECT_EQ(Log(infinity), infinity);
  EXPECT_TRUE(std::isnan(Log(-1.0)));
  EXPECT_TRUE(std::isnan(Log(std::numeric_limits<double>::quiet_NaN())));
}

}  // namespace
}  // namespace sluice::kernels
