#include "engine/review/ladder_fitter.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <random>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/scheduling.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;

const LadderLimits kLimits{.max_tokens = 1000, .max_sequences = 64};

CostModel TokenCosts() {
  CostState state;
  state.law[1] = 1e-6;
  CostModel costs;
  costs.Restore(state);
  return costs;
}

class LadderFitterTest : public ::testing::Test {
 protected:
  std::vector<int32_t> Fit(const std::vector<TokenWeight>& totals) const {
    return TokensOf(LadderFitter(options_, kLimits, costs_, plan_cost_).Fit(totals).buckets());
  }
  std::vector<int32_t> Prune(const std::vector<int32_t>& capacities,
                             const std::vector<TokenWeight>& totals) const {
    return TokensOf(LadderFitter(options_, kLimits, costs_, plan_cost_)
                        .Prune(MakePackedLadder(capacities, kLimits), totals)
                        .buckets());
  }

  LadderOptions options_;
  const CostModel costs_ = TokenCosts();
  PlanCost plan_cost_{.capture_seconds = [](const Bucket&) { return 0.0; },
                      .memory_bytes = [](const Bucket& bucket) { return bucket.tokens; }};
};

TEST_F(LadderFitterTest, FitsTheTotalsAndFillsWideGaps) {
  options_.min_tokens = 16;
  options_.max_buckets = 4;
  EXPECT_THAT(Fit({{90, 5}, {500, 5}, {700, 5}}), ElementsAre(90, 500, 700, 1000));
  options_.max_buckets = 3;
  EXPECT_THAT(Fit({{90, 5}, {500, 5}, {700, 5}}), ElementsAre(90, 700, 1000));
  // A capacity is at most 8 times the previous one, and 16 * 8 < 990 < 16 * 8 * 8, so one more is
  // needed.
  options_.max_buckets = 16;
  EXPECT_THAT(Fit({{990, 5}}), ElementsAre(125, 990, 1000));
  EXPECT_THAT(Fit({}), ElementsAre(126, 1000));
}

// Returns the device seconds of batches with these totals, each in the smallest capacity that holds
// it, on a device with these rows and one microsecond for each.
double SecondsOf(const std::vector<int32_t>& capacities, const ComputedRows& rows,
                 const std::vector<TokenWeight>& totals) {
  double seconds = 0;
  for (const TokenWeight& total : totals) {
    const int32_t capacity = *std::ranges::lower_bound(capacities, total.tokens);
    seconds += 1e-6 * total.weight * static_cast<double>(rows.Of(capacity, total.tokens));
  }
  return seconds;
}

// All subsets of the exact capacities are tried.
TEST_F(LadderFitterTest, IsTheOptimumOverTheRowsOfTheDevice) {
  constexpr int32_t kMaximum = 112;
  const ComputedRows all_rows[] = {
      ComputedRows::OfLibrary(),
      ComputedRows::OfLayers(
          {{.share = 0.75, .slice = 1024, .least = 32}, {.share = 0.25, .slice = 4096}})};
  options_.min_tokens = 16;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const ComputedRows& rows = all_rows[random() % 2];
    LadderLimits limits{.max_tokens = kMaximum, .max_sequences = 64, .rows = rows};
    options_.max_buckets = 2 + static_cast<int32_t>(random() % 4);
    std::set<int32_t> tokens;
    for (uint64_t n = 1 + random() % 12; n > 0; --n) {
      tokens.insert(1 + static_cast<int32_t>(random() % kMaximum));
    }
    std::vector<TokenWeight> totals;
    for (const int32_t t : tokens) totals.push_back({t, 1.0 + static_cast<double>(random() % 9)});
    CostState law{.rows = rows};
    law.law[1] = 1e-6;
    CostModel costs;
    costs.Restore(law);
    const std::vector<int32_t> fitted =
        TokensOf(LadderFitter(options_, limits, costs, plan_cost_).Fit(totals).buckets());
    std::vector<int32_t> exact;
    for (int32_t t = options_.min_tokens; t < kMaximum; ++t) {
      if (rows.Exact(t)) exact.push_back(t);
    }
    for (const int32_t capacity : fitted) {
      EXPECT_TRUE(rows.Exact(capacity) || capacity == kMaximum) << capacity;
    }
    double least = std::numeric_limits<double>::infinity();
    for (uint32_t chosen = 0; chosen < 1u << exact.size(); ++chosen) {
      if (std::popcount(chosen) >= options_.max_buckets) continue;
      std::vector<int32_t> capacities;
      for (size_t i = 0; i < exact.size(); ++i) {
        if (chosen >> i & 1) capacities.push_back(exact[i]);
      }
      capacities.push_back(kMaximum);
      least = std::min(least, SecondsOf(capacities, rows, totals));
    }
    EXPECT_LE(SecondsOf(fitted, rows, totals), least * (1 + 1e-9));
  }
}

TEST_F(LadderFitterTest, RaisesTotalsBelowTheSmallestCapacity) {
  options_.min_tokens = 200;
  EXPECT_THAT(Fit({{3, 5}, {90, 5}, {500, 5}}), ElementsAre(200, 500, 1000));
  options_.min_tokens = 5000;
  EXPECT_THAT(Fit({{3, 5}, {90, 5}}), ElementsAre(1000));
}

TEST_F(LadderFitterTest, DropsBucketsThatCostMoreThanTheySave) {
  plan_cost_.capture_seconds = [](const Bucket& bucket) {
    return bucket.tokens == 700 ? 0.0 : 1e-3;
  };
  EXPECT_THAT(Fit({{690, 5}, {700, 1}}), ElementsAre(105, 700, 1000));
}

TEST_F(LadderFitterTest, NoCapacityIsMoreThanTenTimesThePreviousOne) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    options_.min_tokens = 1 + static_cast<int32_t>(random() % 40);
    options_.max_buckets = 6 + static_cast<int32_t>(random() % 20);
    std::set<int32_t> tokens;
    for (uint64_t n = random() % 30; n > 0; --n)
      tokens.insert(1 + static_cast<int32_t>(random() % 1000));
    std::vector<TokenWeight> totals;
    for (const int32_t t : tokens) totals.push_back({t, 1.0 + static_cast<double>(random() % 9)});
    const std::vector<int32_t> fitted = Fit(totals);
    ASSERT_LE(fitted.size(), static_cast<size_t>(options_.max_buckets));
    int32_t previous = options_.min_tokens;
    for (const int32_t capacity : fitted) {
      // The capacities that fill gaps are rounded down.
      EXPECT_LE(capacity, 10.0 * (previous + 1)) << previous;
      previous = capacity;
    }
  }
}

TEST_F(LadderFitterTest, DropsBucketsThatServeTooFewBatches) {
  options_.min_bucket_usage = 0.1;
  const std::vector<TokenWeight> totals = {{50, 6}, {150, 5}, {250, 80}, {800, 9}};
  // The batches of 100 go to 200, which then serves enough.
  EXPECT_THAT(Prune({100, 200, 300, 900}, totals), ElementsAre(200, 300, 1000));
  // There are too few batches to judge.
  EXPECT_THAT(Prune({100, 200}, {{50, 1}, {950, 30}}), ElementsAre(100, 200, 1000));
}

TEST_F(LadderFitterTest, DropsTheLeastBenefitPerByteUntilMemorySuffices) {
  const std::vector<TokenWeight> totals = {{100, 10}, {400, 1}, {600, 30}};
  EXPECT_THAT(Prune({100, 400, 600}, totals), ElementsAre(100, 400, 600, 1000));
  options_.memory_limit_bytes = 2099;
  EXPECT_THAT(Prune({100, 400, 600}, totals), ElementsAre(100, 600, 1000));
  options_.memory_limit_bytes = 1500;
  EXPECT_THAT(Prune({100, 400, 600}, totals), ElementsAre(100, 1000));
  options_.memory_limit_bytes = 1;  // the largest bucket is kept for any limit
  EXPECT_THAT(Prune({100, 400, 600}, totals), ElementsAre(1000));
  // Without traffic data, the largest of the other buckets is dropped first.
  options_.memory_limit_bytes = 1600;
  EXPECT_THAT(Prune({100, 400, 600}, {}), ElementsAre(100, 400, 1000));
}

TEST_F(LadderFitterTest, CountsOnlyBucketsRemovedForMemoryAsEvicted) {
  const std::vector<TokenWeight> totals = {{100, 10}, {400, 1}, {600, 30}};
  const auto evicted = [&](double least_usage, int64_t limit_bytes) {
    options_.min_bucket_usage = least_usage;
    options_.memory_limit_bytes = limit_bytes;
    return TokensOf(LadderFitter(options_, kLimits, costs_, plan_cost_)
                        .Evicted(MakePackedLadder({100, 400, 600, 1000}, kLimits), totals));
  };
  EXPECT_THAT(evicted(0, 0), ElementsAre());
  EXPECT_THAT(evicted(0, 2099), ElementsAre(400));
  EXPECT_THAT(evicted(0.1, 2099), ElementsAre()) << "it is dropped because it is unused";
  EXPECT_THAT(evicted(0.1, 1500), ElementsAre(600));
}

// A column of 64 positions has rectangles of 1 to 8 rows, one of 512 of one row; with a byte for
// each token the columns of 64, 128, 256 and 512 positions take 960, 896, 768 and 512 bytes.
TEST_F(LadderFitterTest, DropsTheColumnsOfTheLeastBenefitPerByteUntilMemorySuffices) {
  const LadderLimits limits{.max_tokens = 512, .max_sequences = 64, .max_positions = 512};
  const Ladder ladder = MakePaddedLadder({{64, 128, 256, 512}}, limits);
  const auto pruned = [&](int64_t limit_bytes, const std::vector<TokenWeight>& lengths) {
    options_.memory_limit_bytes = limit_bytes;
    const Ladder left =
        LadderFitter(options_, limits, costs_, plan_cost_).PruneColumns(ladder, lengths);
    std::vector<std::pair<int32_t, int32_t>> columns;  // positions, and rectangles
    int64_t bytes = 0;
    for (const Bucket& bucket : left.buckets()) {
      if (columns.empty() || columns.back().first != bucket.positions) {
        columns.emplace_back(bucket.positions, 0);
      }
      ++columns.back().second;
      bytes += bucket.tokens;
    }
    EXPECT_TRUE(left.largest() == ladder.largest());
    if (limit_bytes >= 512) {
      EXPECT_LE(bytes, limit_bytes);
    }
    return columns;
  };
  using Columns = std::vector<std::pair<int32_t, int32_t>>;
  const Columns all = {{64, 4}, {128, 3}, {256, 2}, {512, 1}};
  const std::vector<TokenWeight> lengths = {{50, 9}, {120, 1}, {200, 30}, {500, 3}};
  EXPECT_EQ(pruned(0, lengths), all);
  EXPECT_EQ(pruned(3136, lengths), all);
  EXPECT_EQ(pruned(3135, lengths), (Columns{{64, 4}, {256, 2}, {512, 1}}));
  EXPECT_EQ(pruned(2239, lengths), (Columns{{256, 2}, {512, 1}}));
  EXPECT_EQ(pruned(1279, lengths), (Columns{{512, 1}}));
  EXPECT_EQ(pruned(1, lengths), (Columns{{512, 1}})) << "the largest stays";
  EXPECT_EQ(pruned(3135, {}), (Columns{{128, 3}, {256, 2}, {512, 1}}))
      << "without traffic, the column with the most bytes";
}

TEST_F(LadderFitterTest, TheWidestColumnLosesItsSmallestRectangles) {
  const LadderLimits limits{.max_tokens = 512, .max_sequences = 64, .max_positions = 128};
  const Ladder ladder = MakePaddedLadder({{128}}, limits);  // 1, 2 and 4 rows
  options_.memory_limit_bytes = 512 + 256;
  EXPECT_THAT(LadderFitter(options_, limits, costs_, plan_cost_).PruneColumns(ladder, {}).buckets(),
              ElementsAre(Bucket::Padded(2, 128), Bucket::Padded(4, 128)));
}

TEST(Pool, AveragesTheWeightsOfEachTotal) {
  const std::vector<TokenWeight> pooled = Pool({{{{5, 2}, {7, 4}}, {{7, 2}, {9, 2}}}});
  ASSERT_EQ(pooled.size(), 3u);
  EXPECT_EQ(pooled[0].weight, 1);
  EXPECT_EQ(pooled[1].tokens, 7);
  EXPECT_EQ(pooled[1].weight, 3);
}

}  // namespace
}  // namespace sluice
