#include "engine/review/fit.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;

using Law = std::function<double(int32_t)>;

double Total(std::span<const TokenWeight> sizes, const std::vector<int32_t>& capacities,
             const Law& cost, const Law& price) {
  double total = 0;
  for (const int32_t capacity : capacities) total += price(capacity);
  for (const TokenWeight& size : sizes) {
    total +=
        size.weight * cost(*std::lower_bound(capacities.begin(), capacities.end(), size.tokens));
  }
  return total;
}

struct Best {
  double total = std::numeric_limits<double>::infinity();
  size_t capacities = 0;  // minimum number that reaches this total
};

// Returns the best total over all sets of the sizes below the maximum.
Best BruteForce(std::span<const TokenWeight> sizes, int32_t maximum, int count, const Law& cost,
                const Law& price) {
  std::vector<int32_t> candidates;
  for (const TokenWeight& size : sizes) {
    if (size.tokens < maximum) candidates.push_back(size.tokens);
  }
  Best best;
  for (uint32_t set = 0; set < 1u << candidates.size(); ++set) {
    if (std::popcount(set) >= count) continue;
    std::vector<int32_t> capacities;
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (set >> i & 1) capacities.push_back(candidates[i]);
    }
    capacities.push_back(maximum);
    const double total = Total(sizes, capacities, cost, price);
    if (total < best.total || (total == best.total && capacities.size() < best.capacities)) {
      best = {total, capacities.size()};
    }
  }
  return best;
}

struct NamedLaw {
  const char* name;
  Law law;
};

// All values are whole numbers, so that sums are exact and equal totals compare equal.
const NamedLaw kCosts[] = {
    {"affine", [](int32_t tokens) { return 3.0 + tokens; }},
    {"convex", [](int32_t tokens) { return static_cast<double>(tokens) * tokens; }},
    {"concave", [](int32_t tokens) { return std::floor(100 * std::sqrt(tokens)); }},
    {"steps", [](int32_t tokens) { return static_cast<double>((tokens + 15) / 16 * 16); }},
    {"constant", [](int32_t) { return 5.0; }},
};
const NamedLaw kPrices[] = {
    {"free", [](int32_t) { return 0.0; }},
    {"flat", [](int32_t) { return 150.0; }},
    {"by size", [](int32_t tokens) { return 4.0 * tokens; }},
    {"erratic", [](int32_t tokens) { return static_cast<double>(tokens * 7919 % 501); }},
};

TEST(FitCapacities, EqualsBruteForce) {
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    std::mt19937_64 random(seed);
    std::set<int32_t> tokens;
    for (uint64_t n = random() % 11; n > 0; --n)
      tokens.insert(1 + static_cast<int32_t>(random() % 60));
    std::vector<TokenWeight> sizes;
    for (const int32_t t : tokens) sizes.push_back({t, 1.0 + static_cast<double>(random() % 9)});
    const int32_t maximum = std::max(
        1, (tokens.empty() ? 1 : *tokens.rbegin()) + static_cast<int32_t>(random() % 3) * 9);
    const int count = 1 + static_cast<int>(random() % 6);
    const NamedLaw& cost = kCosts[random() % std::size(kCosts)];
    const NamedLaw& price = kPrices[random() % std::size(kPrices)];
    SCOPED_TRACE(::testing::Message() << "seed " << seed << " cost " << cost.name << " price "
                                      << price.name << " count " << count);

    const std::vector<int32_t> fitted = FitCapacities(sizes, maximum, count, cost.law, price.law);
    ASSERT_FALSE(fitted.empty());
    ASSERT_EQ(fitted.back(), maximum);
    ASSERT_LE(fitted.size(), static_cast<size_t>(count));
    ASSERT_TRUE(std::is_sorted(fitted.begin(), fitted.end(), std::less_equal<>()));
    const Best best = BruteForce(sizes, maximum, count, cost.law, price.law);
    ASSERT_EQ(Total(sizes, fitted, cost.law, price.law), best.total);
    ASSERT_EQ(fitted.size(), best.capacities);
  }
}

TEST(FitCapacities, GivesTheBestCapacities) {
  const Law cost = [](int32_t tokens) { return static_cast<double>(tokens); };
  const Law free = [](int32_t) { return 0.0; };
  const std::vector<TokenWeight> sizes = {{10, 5}, {11, 1}, {90, 1}, {100, 3}};
  EXPECT_THAT(FitCapacities(sizes, 200, 1, cost, free), ElementsAre(200));
  EXPECT_THAT(FitCapacities(sizes, 100, 2, cost, free), ElementsAre(11, 100));
  EXPECT_THAT(FitCapacities(sizes, 200, 3, cost, free), ElementsAre(11, 100, 200));
  EXPECT_THAT(FitCapacities(sizes, 200, 9, cost, free), ElementsAre(10, 11, 90, 100, 200));
  // 11 and 90 would save 79 and 10; 100 saves 400.
  EXPECT_THAT(FitCapacities(sizes, 200, 9, cost, [](int32_t) { return 50.0; }),
              ElementsAre(11, 100, 200));
  EXPECT_THAT(FitCapacities({}, 200, 9, cost, free), ElementsAre(200));
}

TEST(FitCapacities, PrefersFewerThenSmallerCapacitiesIfTotalsAreEqual) {
  const std::vector<TokenWeight> sizes = {{10, 1}, {20, 1}, {30, 1}};
  const Law free = [](int32_t) { return 0.0; };
  EXPECT_THAT(FitCapacities(
                  sizes, 30, 3, [](int32_t) { return 1.0; }, free),
              ElementsAre(30));
  // A capacity of 10 or of 20 saves 10.
  const Law stairs = [](int32_t tokens) {
    return tokens == 30 ? 20.0 : tokens == 20 ? 15.0 : 10.0;
  };
  EXPECT_THAT(FitCapacities(sizes, 30, 2, stairs, free), ElementsAre(10, 30));
}

TEST(FitCapacitiesDeathTest, SizesMustAscendWithinTheMaximum) {
  const Law law = [](int32_t) { return 0.0; };
  EXPECT_DEATH(FitCapacities(std::vector<TokenWeight>{{5, 1}, {5, 1}}, 9, 2, law, law), "tokens");
  EXPECT_DEATH(FitCapacities(std::vector<TokenWeight>{{10, 1}}, 9, 2, law, law), "maximum");
  EXPECT_DEATH(FitCapacities(std::vector<TokenWeight>{{5, 0}}, 9, 2, law, law), "weight");
}

TEST(FitCapacitiesDeathTest, RequiresAtLeastOneCapacity) {
  const Law law = [](int32_t) { return 0.0; };
  EXPECT_DEATH(FitCapacities({}, 9, 0, law, law), "count");
  EXPECT_DEATH(FitCapacities({}, 0, 2, law, law), "maximum");
}

}  // namespace
}  // namespace sluice
