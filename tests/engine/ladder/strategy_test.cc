#include "engine/ladder/strategy.h"

#include <random>

#include "engine/ladder/ladder.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/scheduling.h"
#include "tests/support/table.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int32_t> Build(const LadderOptions& options, const LadderLimits& limits) {
  const absl::StatusOr<Ladder> ladder = BuildLadder(options, limits);
  EXPECT_TRUE(ladder.ok()) << ladder.status();
  return ladder.ok() ? TokensOf(ladder->buckets()) : std::vector<int32_t>{};
}

TEST(PowerOfTwoCapacity, EqualsDoublingUntilTheSizeFits) {
  constexpr int32_t kFloor = 1 << 13;
  constexpr int32_t kCap = 1 << 18;
  for (int32_t m = 0; m <= 1 << 19; ++m) {
    int32_t expected = kFloor;
    while (expected < m && expected < kCap) expected *= 2;
    ASSERT_EQ(PowerOfTwoCapacity(m, kFloor, kCap), expected) << m;
  }
}

TEST(PowerOfTwoCapacity, EqualsTheChoiceOfAGeometricLadder) {
  constexpr int32_t kFloor = 1 << 13;
  constexpr int32_t kCap = 1 << 18;
  const LadderOptions options{
      .strategy = StrategyKind::kGeometric, .ratio = 2.0, .min_tokens = kFloor};
  const absl::StatusOr<Ladder> ladder =
      BuildLadder(options, {.max_tokens = kCap, .max_sequences = 1});
  ASSERT_TRUE(ladder.ok());
  for (int32_t m = 1; m <= kCap; m += 37) {
    ASSERT_EQ(ladder->Choose({.tokens = m, .sequences = 1, .longest = m})->tokens,
              PowerOfTwoCapacity(m, kFloor, kCap))
        << m;
  }
}

const LadderLimits kStrategyLimits{
    .max_tokens = 1000, .max_sequences = 64, .rows = ComputedRows::OfLibrary()};

struct StrategyRow {
  const char* name;
  LadderOptions options;
  std::vector<int32_t> tokens;
};
class StrategyTable : public TableTest<StrategyRow> {};

TEST_P(StrategyTable, BuildsItsBuckets) {
  EXPECT_EQ(Build(row().options, kStrategyLimits), row().tokens);
}

const StrategyRow kStrategyRows[] = {
    {.name = "GeometricStepsArePowersOfTheRatio",
     .options = {.strategy = StrategyKind::kGeometric, .ratio = 2.0, .min_tokens = 100},
     .tokens = {100, 128, 256, 512, 1000}},
    {.name = "AGeometricLadderEndsAtItsCapAndTheMaximum",
     .options =
         {.strategy = StrategyKind::kGeometric, .ratio = 2.0, .min_tokens = 100, .cap_tokens = 300},
     .tokens = {100, 128, 256, 300, 1000}},
    {.name = "ACapAboveTheMaximumChangesNothing",
     .options = {.strategy = StrategyKind::kGeometric, .min_tokens = 100, .cap_tokens = 5000},
     .tokens = {100, 142, 201, 285, 404, 572, 809, 1000}},
    {.name = "AGeometricRatioOfThreeHasWiderSteps",
     .options = {.strategy = StrategyKind::kGeometric, .ratio = 3.0, .min_tokens = 100},
     .tokens = {100, 300, 900, 1000}},
    {.name = "MemoryOptimalStepsGrowByHalf",
     .options = {.strategy = StrategyKind::kMemoryOptimal, .min_tokens = 101},
     .tokens = {101, 152, 228, 342, 513, 770, 1000}},
    {.name = "FixedBucketsEndWithTheMaximum",
     .options = {.strategy = StrategyKind::kFixed, .fixed_tokens = {7, 400}},
     .tokens = {7, 400, 1000}},
    {.name = "FixedBucketsMayIncludeTheMaximum",
     .options = {.strategy = StrategyKind::kFixed, .fixed_tokens = {7, 1000}},
     .tokens = {7, 1000}},
    {.name = "HardwareAwareStepsAreOctavesOfExactRows",
     .options = {.strategy = StrategyKind::kHardwareAware, .min_tokens = 50, .max_buckets = 6},
     .tokens = {56, 96, 160, 320, 640, 1000}},
    // A ladder of half octaves has ten buckets.
    {.name = "UsesOctavesIfABucketIsMissingForHalfOctaves",
     .options = {.strategy = StrategyKind::kHardwareAware, .min_tokens = 50, .max_buckets = 9},
     .tokens = {56, 96, 160, 320, 640, 1000}},
    {.name = "EnoughBucketsMakeHalfOctaves",
     .options = {.strategy = StrategyKind::kHardwareAware, .min_tokens = 50, .max_buckets = 10},
     .tokens = {56, 80, 112, 160, 224, 320, 448, 640, 896, 1000}},
};
SLUICE_TABLE(StrategyTable, kStrategyRows);

TEST(Strategy, AnAdaptiveLadderStartsGeometric) {
  const LadderLimits any{.max_tokens = 1000, .max_sequences = 64};
  EXPECT_EQ(Build({.strategy = StrategyKind::kAdaptive}, any),
            Build({.strategy = StrategyKind::kGeometric}, any));
}

TEST(Strategy, TheFirstAdaptiveLadderHasOnlyExactCapacities) {
  EXPECT_THAT(
      Build({.strategy = StrategyKind::kAdaptive, .ratio = 2.0, .min_tokens = 9}, kStrategyLimits),
      ElementsAre(16, 32, 64, 128, 256, 512, 1000));
  EXPECT_THAT(
      Build({.strategy = StrategyKind::kAdaptive, .ratio = 1.5, .min_tokens = 40}, kStrategyLimits),
      ElementsAre(40, 64, 96, 160, 224, 320, 512, 768, 1000));
}

TEST(Strategy, ThinningKeepsTheSmallestAndTheLargestBucket) {
  const LadderLimits limits{.max_tokens = 4096, .max_sequences = 64};
  const auto thinned = [&](int32_t count) {
    return Build({.ratio = 2.0, .min_tokens = 16, .max_buckets = count}, limits);
  };
  EXPECT_THAT(thinned(3), ElementsAre(16, 256, 4096));
  EXPECT_THAT(thinned(2), ElementsAre(16, 4096));
  EXPECT_THAT(thinned(1), ElementsAre(4096));
}

struct BadLadderOptionsRow {
  const char* name;
  LadderOptions options;
  const char* named;
};
class BadLadderOptionsTable : public TableTest<BadLadderOptionsRow> {};

TEST_P(BadLadderOptionsTable, TheErrorNamesTheOption) {
  const LadderLimits limits{.max_tokens = 1000, .max_sequences = 64};
  const absl::StatusOr<Ladder> ladder = BuildLadder(row().options, limits);
  EXPECT_EQ(ladder.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(ladder.status().message()), HasSubstr(row().named));
}

const BadLadderOptionsRow kBadLadderOptionsRows[] = {
    {.name = "ARatioOfOneIsRefused", .options = {.ratio = 1.0}, .named = "ratio is 1,"},
    {.name = "ARatioAboveItsRangeIsRefused", .options = {.ratio = 16.5}, .named = "ratio is 16.5,"},
    {.name = "ARatioThatIsNotANumberIsRefused",
     .options = {.ratio = std::numeric_limits<double>::quiet_NaN()},
     .named = "ratio"},
    {.name = "AMinimumOfZeroTokensIsRefused", .options = {.min_tokens = 0}, .named = "min_tokens"},
    {.name = "ACapBelowTheMinimumIsRefused",
     .options = {.min_tokens = 16, .cap_tokens = 15},
     .named = "cap_tokens"},
    {.name = "ANegativeNumberOfBucketsIsRefused",
     .options = {.max_buckets = -1},
     .named = "max_buckets"},
    {.name = "AFixedBucketAboveTheMaximumIsRefused",
     .options = {.strategy = StrategyKind::kFixed, .fixed_tokens = {8, 1001}},
     .named = "fixed_tokens"},
    {.name = "AFixedBucketGivenTwiceIsRefused",
     .options = {.strategy = StrategyKind::kFixed, .fixed_tokens = {8, 8}},
     .named = "fixed_tokens"},
    {.name = "AFixedBucketOfZeroIsRefused",
     .options = {.strategy = StrategyKind::kFixed, .fixed_tokens = {0, 8}},
     .named = "fixed_tokens"},
};
SLUICE_TABLE(BadLadderOptionsTable, kBadLadderOptionsRows);

const ComputedRows kRows[] = {ComputedRows::OfBatch(), ComputedRows::OfBucket(),
                              ComputedRows::OfLibrary(),
                              ComputedRows::OfLayers({{.share = 0.4, .slice = 1024, .least = 32},
                                                      {.share = 0.5, .slice = 4096}})};

TEST(Strategy, EveryLadderIsSortedBoundedAndEndsWithTheMaximum) {
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const auto draw = [&](int64_t low, int64_t high) {
      return static_cast<int32_t>(low + static_cast<int64_t>(random() % (high - low + 1)));
    };
    const LadderLimits limits{.max_tokens = 1 << draw(0, 20) | draw(0, 1),
                              .max_sequences = draw(1, 300),
                              .rows = kRows[draw(0, std::ssize(kRows) - 1)],
                              .max_buckets = draw(1, 64)};
    LadderOptions options;
    options.strategy = StrategyKind(draw(1, 4));
    options.ratio = 1.0 + static_cast<double>(draw(1, 15000)) / 1000;
    options.min_tokens = draw(1, 5000);
    if (draw(0, 1) == 1) options.cap_tokens = options.min_tokens + draw(0, 5000);
    options.max_buckets = draw(0, 64);
    const absl::StatusOr<Ladder> ladder = BuildLadder(options, limits);
    ASSERT_TRUE(ladder.ok()) << ladder.status();
    const auto buckets = ladder->buckets();
    ASSERT_LE(std::ssize(buckets), limits.MaxBuckets(options));
    EXPECT_EQ(ladder->largest().tokens, limits.max_tokens);
    for (size_t i = 0; i < buckets.size(); ++i) {
      EXPECT_GE(buckets[i].tokens, std::min(options.min_tokens, limits.max_tokens));
      EXPECT_EQ(buckets[i].sequences, std::min(buckets[i].tokens, limits.max_sequences));
      if (i > 0) {
        EXPECT_LT(buckets[i - 1].tokens, buckets[i].tokens);
      }
      const bool exact = options.strategy == StrategyKind::kHardwareAware ||
                         options.strategy == StrategyKind::kAdaptive;
      if (exact && i + 1 < buckets.size()) {
        EXPECT_TRUE(limits.rows.Exact(buckets[i].tokens)) << buckets[i].tokens;
      }
    }
  }
}

}  // namespace
}  // namespace sluice
