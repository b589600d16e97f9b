#include "loadtest/load/peak.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace sluice::load {
namespace {

TEST(PeakSearch, DoublesThenBisects) {
  PeakSearch search(100, 0.1);
  std::vector<double> rates;
  while (!search.done()) {
    rates.push_back(search.next_rate());
    search.Report(search.next_rate() <= 330);
  }
  EXPECT_EQ(rates, (std::vector<double>{100, 200, 400, 300, 350, 325}));
  EXPECT_EQ(search.peak(), 325);
}

TEST(PeakSearch, HalvesWhenTheStartIsTooHigh) {
  PeakSearch search(100, 0.5);
  std::vector<double> rates;
  while (!search.done()) {
    rates.push_back(search.next_rate());
    search.Report(search.next_rate() <= 30);
  }
  EXPECT_EQ(rates, (std::vector<double>{100, 50, 25, 37.5}));
  EXPECT_EQ(search.peak(), 25);
}

TEST(PeakSearch, EndsWithinItsToleranceBelowTheLimit) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<double> exponent(0, 4);
    const double limit = std::pow(10, exponent(random));
    PeakSearch search(std::pow(10, exponent(random)), 0.05);
    while (!search.done()) search.Report(search.next_rate() <= limit);
    EXPECT_LE(search.peak(), limit);
    EXPECT_GE(search.peak() * 1.05, limit);
  }
}

TEST(PeakSearch, GivesUpOnAServerThatNeverPassesOrNeverFails) {
  for (const bool passes : {false, true}) {
    PeakSearch search(1, 0.05);
    int phases = 0;
    while (!search.done()) {
      search.Report(passes);
      ASSERT_LT(++phases, 100);
    }
    EXPECT_EQ(search.peak() > 0, passes);
  }
}

}  // namespace
}  // namespace sluice::load
