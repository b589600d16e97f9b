#include "server/observe/bucket_summary.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>

namespace sluice {
namespace {

using Entry = TokenWeight;

BucketStats Used(Bucket bucket, int64_t batches, int64_t hits, int64_t useful, int64_t computed,
                 int64_t sequences) {
  return {.bucket = bucket,
          .batches = batches,
          .hits = hits,
          .useful_tokens = useful,
          .computed_tokens = computed,
          .bucket_tokens = batches * bucket.tokens,
          .sequences = sequences,
          .activation_bytes = 1000 + 7 * bucket.tokens,
          .exact_activation_bytes = batches * 1000 + 7 * useful};
}

TEST(BucketLabel, DistinguishesTheLayouts) {
  EXPECT_EQ(BucketLabel({.tokens = 512, .sequences = 64}), "512x64");
  EXPECT_EQ(BucketLabel(Bucket::Padded(8, 64)), "8x64p");
}

TEST(Summarize, WeighsBucketsByTheirTokens) {
  const BucketStats buckets[] = {
      Used({.tokens = 10, .sequences = 4}, 10, 10, 90, 95, 20),
      Used({.tokens = 100, .sequences = 8}, 1, 0, 50, 50, 2),
  };
  const BucketSummary all = Summarize(buckets);
  EXPECT_EQ(all.batches, 11);
  EXPECT_DOUBLE_EQ(all.hit_rate, 10.0 / 11);
  EXPECT_DOUBLE_EQ(all.bucket_fill, 140.0 / 200);
  EXPECT_DOUBLE_EQ(all.executed_efficiency, 140.0 / 145);
  EXPECT_DOUBLE_EQ(all.memory_overhead, (11'000.0 + 7 * 200) / (11'000 + 7 * 140) - 1);
}

TEST(Summarize, WithoutBatchesAllRatiosAreZero) {
  const BucketStats unused = Used({.tokens = 10, .sequences = 4}, 0, 0, 0, 0, 0);
  for (const BucketSummary& none : {Summarize({}), Summarize({&unused, 1})}) {
    EXPECT_EQ(none.hit_rate, 0);
    EXPECT_EQ(none.bucket_fill, 0);
    EXPECT_EQ(none.executed_efficiency, 0);
    EXPECT_EQ(none.memory_overhead, 0);
  }
}

TEST(UseOf, AllSharesAreZeroWithoutBatchesOrTime) {
  const ModelStats stats;
  const BatchCounts none, some{.batches = 1, .useful_tokens = 5, .replay = std::chrono::seconds(1)};
  for (const DeviceUse& use :
       {UseOf(none, std::chrono::hours(1), stats), UseOf(some, nanoseconds(0), stats)}) {
    EXPECT_EQ(use.busy_share, 0);
    EXPECT_EQ(use.wasted_share, 0);
    EXPECT_EQ(use.useful_share, 0);
  }
  EXPECT_EQ(UseOf(some, std::chrono::seconds(4), stats).busy_share, 0.25);
  EXPECT_EQ(UseOf(some, std::chrono::seconds(4), stats).useful_share, 0) << "no measured rate";
}

// The steps take 0.1 s, 0.0005 s for each row of the bucket and 0.0015 s for each token, which are
// all rows of a padded bucket.
TEST(UseOf, WastedTimeIsTheTimeThatStepsOfExactSizesWouldSave) {
  ModelStats stats;
  stats.costs.law[0] = 0.1;
  stats.costs.law[1] = 0.0005;
  stats.costs.law[2] = 0.0015;
  const auto seconds = [](int64_t rows, int64_t tokens) {
    return 1 + 0.0005 * static_cast<double>(rows) + 0.0015 * static_cast<double>(tokens);
  };
  BatchCounts counts{
      .batches = 10, .useful_tokens = 600, .computed_tokens = 1000, .bucket_tokens = 1000};
  const double exact = seconds(600, 600);
  for (const bool padded : {false, true}) {
    const double took = seconds(1000, padded ? 1000 : 600);
    counts.replay = std::chrono::duration_cast<nanoseconds>(std::chrono::duration<double>(took));
    const Bucket bucket = padded ? Bucket::Padded(10, 10) : Bucket{.tokens = 100, .sequences = 10};
    stats.buckets = {{.bucket = bucket}};
    EXPECT_NEAR(UseOf(counts, std::chrono::minutes(1), stats).wasted_share, 1 - exact / took, 1e-9)
        << padded;
  }
  BatchCounts live = counts;
  live.computed_tokens = live.useful_tokens;
  EXPECT_EQ(UseOf(live, std::chrono::minutes(1), stats).wasted_share, 0)
      << "empty rows of the bucket that the device does not compute cost nothing";
}

TEST(WeightedQuantile, IsTheFirstSizeThatReachesItsShare) {
  const std::vector<TokenWeight> entries = {{4, 1}, {8, 2}, {16, 1}};
  EXPECT_EQ(WeightedQuantile(entries, 0), 4);
  EXPECT_EQ(WeightedQuantile(entries, 0.25), 4);
  EXPECT_EQ(WeightedQuantile(entries, 0.26), 8);
  EXPECT_EQ(WeightedQuantile(entries, 0.75), 8);
  EXPECT_EQ(WeightedQuantile(entries, 0.76), 16);
  EXPECT_EQ(WeightedQuantile(entries, 1), 16);
  EXPECT_EQ(WeightedQuantile({}, 0.5), 0);
}

TEST(Coarsen, KeepsFewEntriesUnchangedAndMergesMany) {
  const std::vector<Entry> entries = {{1, 1}, {2, 0.5}, {5, 4}, {9, 2}};
  const auto same = Coarsen(entries, 4);
  ASSERT_EQ(same.size(), 4u);
  EXPECT_EQ(same[2].tokens, 5);
  const auto two = Coarsen(entries, 2);
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[0].tokens, 2);
  EXPECT_DOUBLE_EQ(two[0].weight, 1.5);
  EXPECT_EQ(two[1].tokens, 9);
  EXPECT_DOUBLE_EQ(two[1].weight, 6);
  EXPECT_TRUE(Coarsen({}, 3).empty());
}

TEST(Coarsen, KeepsTheOrderTheTotalWeightAndTheMaximum) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    std::vector<Entry> entries(1 + random() % 50);
    double weight = 0;
    int32_t tokens = 0;
    for (Entry& entry : entries) {
      tokens += 1 + static_cast<int32_t>(random() % 9);
      entry = {tokens, static_cast<double>(random() % 100)};
      weight += entry.weight;
    }
    const size_t count = 1 + random() % 60;
    const auto coarse = Coarsen(entries, count);
    EXPECT_EQ(coarse.size(), std::min(count, entries.size()));
    EXPECT_EQ(coarse.back().tokens, entries.back().tokens);
    double sum = 0;
    for (size_t i = 0; i < coarse.size(); ++i) {
      sum += coarse[i].weight;
      if (i == 0) continue;
      EXPECT_GT(coarse[i].tokens, coarse[i - 1].tokens);
    }
    EXPECT_DOUBLE_EQ(sum, weight);
  }
}

}  // namespace
}  // namespace sluice
