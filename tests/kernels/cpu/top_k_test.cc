#include "kernels/cpu/sample.h"
#include "kernels/reference/activation.h"
#include "kernels/reference/sample.h"
#include "tests/kernels/cpu/op_test.h"

namespace sluice::kernels {
namespace {

class TopKTest : public OpTest {
 protected:
  void ExpectReference(const std::vector<float>& x, int64_t k) {
    const int64_t n = static_cast<int64_t>(x.size());
    std::vector<float> values(k);
    std::vector<int32_t> ids(k);
    std::vector<uint64_t> scratch(TopKScratch(n, k));
    TopK(GetParam(), x.data(), n, k, values.data(), ids.data(), scratch.data());
    ASSERT_EQ(ids, reference::TopK(ToDouble(x), k)) << "n " << n << " k " << k;
    for (int64_t i = 0; i < k; ++i) {
      ASSERT_TRUE(values[i] == x[ids[i]] || std::isnan(x[ids[i]]));
    }
  }

  double LogSum(const std::vector<float>& x) {
    return LogSumExp(GetParam(), x.data(), static_cast<int64_t>(x.size()));
  }
};

TEST_P(TopKTest, EqualsTheReferenceForRandomSizes) {
  std::mt19937_64 random(71);
  for (int trial = 0; trial < 300; ++trial) {
    const int64_t n = RandomInt(random, 1, trial % 3 == 0 ? 5000 : 300);
    SCOPED_TRACE(testing::Message() << "trial " << trial);
    std::vector<float> x = RandomFloats(random, n, 10.0f);
    if (trial % 2 == 0) {  // many ties
      for (float& value : x) value = std::round(value);
    }
    ExpectReference(x, RandomInt(random, 1, n));
    ExpectReference(x, 1);
    ExpectReference(x, n);
  }
}

TEST_P(TopKTest, EqualsTheReferenceInHardOrders) {
  std::vector<float> ascending(3000), equal(3000, 0.5f), zeros(3000);
  for (int i = 0; i < 3000; ++i) {
    ascending[i] = static_cast<float>(i);
    zeros[i] = i % 3 == 0 ? -0.0f : 0.0f;  // equal, with any sign
  }
  const std::vector<float> descending(ascending.rbegin(), ascending.rend());
  for (int64_t k : {1, 2, 50, 1000, 2999, 3000}) {
    for (const auto& x : {ascending, descending, equal, zeros}) ExpectReference(x, k);
  }
}

TEST_P(TopKTest, EqualsTheReferenceForSmallKOfManyValues) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const int64_t n = RandomInt(random, 1800, 20000);
    std::vector<float> x = RandomFloats(random, n, 50.0f);
    const int64_t kind = static_cast<int64_t>(seed) % 6;
    if (kind == 1) std::sort(x.begin(), x.end());
    if (kind == 2) std::sort(x.begin(), x.end(), std::greater<>());
    for (float& value : x) {
      // Most values occur several times; only a few are unique.
      if (kind == 3 && RandomInt(random, 0, 999) != 0) value = std::round(value / 20);
      if (kind == 4 && RandomInt(random, 0, 999) != 0) value = -kInfinity;
      if (kind == 5 && RandomInt(random, 0, 3) == 0) {
        value = RandomInt(random, 0, 1) == 0 ? kPoison : kInfinity;
      }
    }
    for (const int64_t k : {int64_t{1}, RandomInt(random, int64_t{2}, 20), n / 256, n / 256 + 2}) {
      ExpectReference(x, k);
    }
  }
}

TEST_P(TopKTest, NaNSortsLastAndInfinitiesWhereTheyBelong) {
  std::mt19937_64 random(72);
  for (int trial = 0; trial < 100; ++trial) {
    std::vector<float> x = RandomFloats(random, RandomInt(random, 1, 900));
    for (float& value : x) {
      const int64_t kind = RandomInt(random, 0, 5);
      if (kind < 3) value = kind == 0 ? kPoison : kind == 1 ? -kInfinity : kInfinity;
    }
    ExpectReference(x, RandomInt(random, 1, static_cast<int64_t>(x.size())));
  }
  ExpectReference(std::vector<float>(40, kPoison), 7);
}

TEST_P(TopKTest, ValuesAreOptional) {
  const float x[] = {1, 3, 2};
  int32_t id;
  std::vector<uint64_t> scratch(TopKScratch(3, 1));
  TopK(GetParam(), x, 3, 1, nullptr, &id, scratch.data());
  EXPECT_EQ(id, 1);
}

TEST_P(TopKTest, LogSumExpEqualsTheReference) {
  std::mt19937_64 random(73);
  for (int64_t n : {1, 2, 15, 16, 17, 1023, 1024, 1025, 5000, 40000}) {
    for (float offset : {0.0f, 1e4f, -1e4f}) {
      std::vector<float> x = RandomFloats(random, n, 20.0f);
      for (float& value : x) value += offset;
      const double expected = reference::LogSumExp(ToDouble(x));
      EXPECT_NEAR(LogSum(x), expected, Tolerance<float>(Op::kLogSumExp)) << n << " at " << offset;
    }
  }
}

TEST_P(TopKTest, LogSumExpOfValuesThatAreNotFinite) {
  EXPECT_EQ(LogSum({-kInfinity, -kInfinity}), -kInfinity);
  EXPECT_EQ(LogSum({-kInfinity, 2.0f}), 2.0f);
  EXPECT_TRUE(std::isnan(LogSum({1.0f, kInfinity})));
  EXPECT_TRUE(std::isnan(LogSum({1.0f, kPoison, 2.0f})));
  EXPECT_TRUE(std::isnan(LogSum({kPoison, -kInfinity})));
  EXPECT_TRUE(std::isnan(LogSum(std::vector<float>(3000, kPoison))));
  EXPECT_EQ(LogSum({3e38f, 3e38f, -3e38f}), 3e38f + std::log(2.0));
}

SLUICE_EVERY_F32_PROFILE(TopKTest);

}  // namespace
}  // namespace sluice::kernels
