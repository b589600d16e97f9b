#include "engine/schedule/traffic.h"

#include <chrono>
#include <cmath>
#include <map>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr MonoTime kStart{hours(1)};

TEST(DecayedHistogram, HalvesPerHalfLife) {
  DecayedHistogram histogram(seconds(10));
  EXPECT_EQ(histogram.total(), 0);
  EXPECT_EQ(histogram.Entropy(), 0);
  histogram.Add(5, kStart);
  histogram.Add(5, kStart);
  histogram.Add(9, kStart + seconds(10));
  const std::vector<TokenWeight> entries = histogram.Entries();
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].tokens, 5);
  EXPECT_DOUBLE_EQ(entries[0].weight, 1);
  EXPECT_EQ(entries[1].tokens, 9);
  EXPECT_DOUBLE_EQ(entries[1].weight, 1);
  EXPECT_DOUBLE_EQ(histogram.total(), 2);
  EXPECT_DOUBLE_EQ(histogram.Entropy(), 1);  // two equal shares
}

TEST(DecayedHistogram, EqualsTheSumOfDecayedAdds) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const double half_life = 1.0 + static_cast<double>(random() % 100);
    DecayedHistogram histogram{seconds(static_cast<int64_t>(half_life))};
    struct Addition {
      int32_t tokens;
      MonoTime at;
    };
    std::vector<Addition> additions;
    MonoTime now = kStart;
    for (int i = 0; i < 2000; ++i) {
      additions.push_back({1 + static_cast<int32_t>(random() % 40), now});
      histogram.Add(additions.back().tokens, now);
      now += milliseconds(random() % 500);
    }
    std::map<int32_t, double> expected;
    for (const Addition& a : additions) {
      const std::chrono::duration<double> age = additions.back().at - a.at;
      expected[a.tokens] += std::exp2(-age.count() / half_life);
    }
    double total = 0;
    for (const TokenWeight& entry : histogram.Entries()) {
      EXPECT_NEAR(entry.weight, expected[entry.tokens], 0.01) << entry.tokens;
      total += entry.weight;
    }
    EXPECT_NEAR(histogram.total(), total, 1e-9 * total);
  }
}

TEST(DecayedHistogram, ForgetsDecayedCounts) {
  DecayedHistogram histogram(seconds(1));
  MonoTime now = kStart;
  for (int32_t tokens = 1; tokens <= 100'000; ++tokens) {
    histogram.Add(tokens, now);
    now += milliseconds(10);
    if (tokens % 1000 == 0) {
      ASSERT_LE(histogram.Entries().size(), 100u * 19) << tokens;
    }
  }
  EXPECT_EQ(histogram.Entries().back().tokens, 100'000);
  EXPECT_NEAR(histogram.total(), 1 / (1 - std::exp2(-0.01)), 1);
}

TEST(DecayedHistogram, AfterALongPauseOnlyTheNewestCounts) {
  DecayedHistogram histogram(seconds(1));
  for (int i = 0; i < 1000; ++i) histogram.Add(7, kStart);
  histogram.Add(8, kStart + hours(24 * 365));
  ASSERT_EQ(histogram.Entries().size(), 1u);
  EXPECT_EQ(histogram.Entries()[0].tokens, 8);
  EXPECT_DOUBLE_EQ(histogram.total(), 1);
}

TEST(DecayedHistogram, ATimeBeforeTheLatestCountsAsTheLatest) {
  DecayedHistogram histogram(seconds(1));
  histogram.Add(1, kStart + seconds(5));
  histogram.Add(2, kStart);
  EXPECT_DOUBLE_EQ(histogram.total(), 2);
}

TEST(Traffic, RemembersTheLatestArrivals) {
  constexpr auto kCapacity = static_cast<int32_t>(Traffic::kRecentArrivals);
  for (const int32_t count :
       {0, 1, 300, kCapacity - 1, kCapacity, kCapacity + 1, 3 * kCapacity + 7}) {
    SCOPED_TRACE(count);
    Traffic traffic(seconds(60));
    for (int32_t i = 0; i < count; ++i) {
      traffic.OnArrival({.at = kStart + seconds(i), .tokens = 1 + i, .priority = 1 + i % 3});
    }
    const std::vector<Arrival> recent = traffic.RecentArrivals();
    ASSERT_EQ(recent.size(), static_cast<size_t>(std::min(count, kCapacity)));
    for (size_t back = 0; back < recent.size(); ++back) {
      const int32_t i = count - 1 - static_cast<int32_t>(back);
      const Arrival expected{.at = kStart + seconds(i), .tokens = 1 + i, .priority = 1 + i % 3};
      ASSERT_EQ(recent[recent.size() - 1 - back], expected);
    }
  }
}

TEST(Traffic, CountsTheTokensOfBatches) {
  Traffic traffic(seconds(10));
  traffic.OnBatch({.tokens = 5, .sequences = 1, .longest = 5}, kStart);
  traffic.OnBatch({.tokens = 40, .sequences = 2, .longest = 30}, kStart + seconds(10));
  EXPECT_DOUBLE_EQ(traffic.batch_tokens().total(), 1.5);
  const std::vector<TokenWeight> entries = traffic.batch_tokens().Entries();
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_DOUBLE_EQ(entries[0].weight, 0.5);
  EXPECT_EQ(entries[1].tokens, 40);
  EXPECT_DOUBLE_EQ(entries[1].weight, 1);
}

TEST(Traffic, TheRateCoversTheLatestArrivals) {
  Traffic traffic(seconds(60));
  const auto expect_rate = [&](MonoTime now, double sequences, double tokens) {
    EXPECT_NEAR(traffic.Rate(now).sequences_per_second, sequences, 1e-9);
    EXPECT_NEAR(traffic.Rate(now).tokens_per_second, tokens, 1e-9);
  };
  expect_rate(kStart, 0, 0);
  traffic.OnArrival({.at = kStart, .tokens = 100});
  expect_rate(kStart, 0, 0);
  expect_rate(kStart + seconds(1), 0, 0);
  for (int i = 1; i <= 10; ++i) {
    traffic.OnArrival({.at = kStart + seconds(i), .tokens = 30});
  }
  expect_rate(kStart + seconds(10), 1, 30);
  expect_rate(kStart + seconds(20), 0.5, 15);  // a pause lowers the rate

  MonoTime now = kStart + seconds(20);
  for (int i = 0; i < 20'000; ++i) {
    traffic.OnArrival({.at = now, .tokens = 1 + i % 2});
    now += milliseconds(1);
  }
  // Old arrivals do not count.
  expect_rate(now - milliseconds(1), 1000, 1500 + 500.0 / 255);
}

}  // namespace
}  // namespace sluice
