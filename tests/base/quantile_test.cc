#include "base/quantile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace sluice {
namespace {

TEST(Quantile, IsZeroOfNoValues) {
  EXPECT_EQ(Quantile(std::span<double>(), 0.5), 0);
  EXPECT_EQ(QuantileOfSorted(std::span<const int>(), 0.5), 0);
}

TEST(Quantile, IsTheLeastValueThatTheShareOfValuesDoesNotExceed) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 200; ++round) {
    std::vector<int> values(1 + random() % 50);
    for (int& value : values) value = static_cast<int>(random() % 20);
    const double share = static_cast<double>(random() % 1001) / 1000;
    const int quantile = Quantile(std::span<int>(values), share);
    const double wanted = share * static_cast<double>(values.size());
    const auto at_most =
        std::count_if(values.begin(), values.end(), [&](int v) { return v <= quantile; });
    const auto below =
        std::count_if(values.begin(), values.end(), [&](int v) { return v < quantile; });
    EXPECT_GE(static_cast<double>(at_most), wanted - 1e-9);
    if (below > 0) {
      EXPECT_LT(static_cast<double>(below), wanted - 1e-9);
    }
    std::sort(values.begin(), values.end());
    EXPECT_EQ(QuantileOfSorted(std::span<const int>(values), share), quantile);
  }
}

TEST(Quantile, TakesTheNearestRank) {
  EXPECT_EQ(QuantileIndex(1, 0), 0u);
  EXPECT_EQ(QuantileIndex(1, 1), 0u);
  EXPECT_EQ(QuantileIndex(10, 0.5), 4u);
  EXPECT_EQ(QuantileIndex(10, 0.51), 5u);
  EXPECT_EQ(QuantileIndex(10, 0.9), 8u);
  EXPECT_EQ(QuantileIndex(10, 0.99), 9u);
  EXPECT_EQ(QuantileIndex(10, 1), 9u);
}

TEST(Quantile, IsExactAtWholeRanks) {
  EXPECT_EQ(QuantileIndex(1000, 0.999), 998u);
  for (size_t size = 1; size <= 2000; ++size) {
    for (size_t rank = 1; rank <= size; rank += 1 + size / 50) {
      const double share = static_cast<double>(rank) / static_cast<double>(size);
      EXPECT_EQ(QuantileIndex(size, share), rank - 1) << rank << " of " << size;
    }
  }
}

TEST(Median, IsInTheMiddleOrTheMeanOfTwo) {
  EXPECT_EQ(Median({}), 0);
  EXPECT_EQ(Median({7}), 7);
  EXPECT_EQ(Median({4, 1}), 2.5);
  EXPECT_EQ(Median({9, 1, 4}), 4);
  EXPECT_EQ(Median({9, 1, 4, 2}), 3);
}

}  // namespace
}  // namespace sluice
