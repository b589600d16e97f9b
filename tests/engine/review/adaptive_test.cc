#include "engine/review/adaptive.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>

#include "engine/review/ladder_benchmark.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using std::chrono::hours;
using std::chrono::seconds;
using ::testing::HasSubstr;

const LadderLimits kLimits{.max_tokens = 16384, .max_sequences = 256};
const BatchOptions kBatch{};
constexpr double kStepSeconds = 60e-6;
constexpr double kTokenSeconds = 0.04e-6;

CostModel Costs(double per_bucket_token = kTokenSeconds, double per_computed_token = 0) {
  CostState state;
  state.law[0] = kStepSeconds;
  state.law[1] = per_bucket_token;
  state.law[2] = per_computed_token;
  CostModel costs;
  costs.Restore(state);
  return costs;
}

PlanCost PlanCosts(double capture_seconds = 0.01) {
  return {.capture_seconds = [capture_seconds](const Bucket&) { return capture_seconds; },
          .memory_bytes = [](const Bucket& bucket) { return int64_t{100} * bucket.tokens; }};
}

std::vector<int32_t> LogNormalLengths(size_t count, double median, double sigma, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::lognormal_distribution<double> length(std::log(median), sigma);
  std::vector<int32_t> lengths(count);
  for (int32_t& tokens : lengths) {
    tokens = static_cast<int32_t>(std::clamp(length(random), 1.0, 8192.0));
  }
  return lengths;
}

// Returns Poisson arrivals at the share `load` of the rate that full batches can serve.
std::vector<Arrival> Arrivals(std::span<const int32_t> lengths, double load, uint64_t seed) {
  std::mt19937_64 random(seed);
  double tokens = 0;
  for (const int32_t length : lengths) tokens += length;
  const double seconds_per_token = kStepSeconds / kLimits.max_tokens + kTokenSeconds;
  std::exponential_distribution<double> gap(
      load / (seconds_per_token * tokens / static_cast<double>(lengths.size())));
  std::vector<Arrival> arrivals;
  double now = 3600;
  for (const int32_t length : lengths) {
    now += gap(random);
    arrivals.push_back({.at = MonoTime(nanoseconds(std::llround(now * 1e9))), .tokens = length});
  }
  return arrivals;
}

std::vector<Arrival> LogNormalArrivals(double median, double sigma, double load, uint64_t seed) {
  return Arrivals(LogNormalLengths(Traffic::kRecentArrivals, median, sigma, seed), load, seed + 1);
}

Traffic TrafficOf(std::span<const Arrival> arrivals) {
  Traffic traffic(seconds(300));
  for (const Arrival& arrival : arrivals) traffic.OnArrival(arrival);
  return traffic;
}

LadderReview Review(const LadderOptions& options, const Ladder& present, const Traffic& traffic,
                    bool force = false, const CostModel& costs = Costs(),
                    const PlanCost& plan_cost = PlanCosts()) {
  return ReviewLadder(options, kBatch, kLimits, present, costs, traffic, plan_cost, force);
}

double EfficiencyOf(const Ladder& ladder, std::span<const Arrival> arrivals) {
  return BenchmarkLadder(ladder, arrivals, kBatch, Costs()).bucket_fill;
}

TEST(ReviewLadder, AdoptsABetterLadderOnce) {
  const LadderOptions options;
  const Ladder geometric = *BuildLadder(options, kLimits);
  for (const double load : {0.5, 0.85}) {
    for (uint64_t seed = 1; seed <= 2; ++seed) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed << " load " << load);
      const auto arrivals = [&](uint64_t part) {
        return LogNormalArrivals(2500, 0.4, load, 10 * seed + part);
      };
      const LadderReview first = Review(options, geometric, TrafficOf(arrivals(0)));
      ASSERT_NE(first.ladder, nullptr) << first.reason;
      EXPECT_GT(first.gain, options.review.min_gain);
      EXPECT_GT(first.bucket_fill_after, first.bucket_fill_before);
      EXPECT_FALSE(first.diff.empty());
      EXPECT_GT(EfficiencyOf(*first.ladder, arrivals(1)), EfficiencyOf(geometric, arrivals(1)));
      for (uint64_t part = 2; part < 4; ++part) {
        const LadderReview next = Review(options, *first.ladder, TrafficOf(arrivals(part)));
        EXPECT_EQ(next.ladder, nullptr) << next.reason;
        EXPECT_TRUE(next.diff.empty());
      }
    }
  }
}

TEST(ReviewLadder, SearchesForNoLadderIfTheDeviceComputesTheRowsOfTheBatch) {
  LadderLimits limits = kLimits;
  limits.rows = ComputedRows::OfBatch();
  CostState state = Costs().state();
  state.rows = limits.rows;
  CostModel costs;
  costs.Restore(state);
  const Traffic traffic = TrafficOf(LogNormalArrivals(2500, 0.4, 0.5, 3));
  LadderOptions options;
  const Ladder geometric = *BuildLadder(options, limits);
  const LadderReview review =
      ReviewLadder(options, kBatch, limits, geometric, costs, traffic, PlanCosts(), /*force=*/true);
  EXPECT_EQ(review.ladder, nullptr);
  EXPECT_EQ(review.gain, 0);
  EXPECT_EQ(review.reason, kLadderIsFree);
  // Memory still counts.
  options.memory_limit_bytes = 1'700'000;
  const LadderReview pruned = ReviewLadder(options, kBatch, limits, geometric, costs, traffic,
                                           PlanCosts(), /*force=*/false);
  ASSERT_NE(pruned.ladder, nullptr) << pruned.reason;
  EXPECT_LT(pruned.ladder->buckets().size(), geometric.buckets().size());
  EXPECT_EQ(pruned.gain, 0);
  const absl::StatusOr<LadderReview> chosen =
      AdoptLadder({.strategy = StrategyKind::kMemoryOptimal}, kBatch, limits, geometric, costs,
                  traffic, PlanCosts());
  EXPECT_EQ(chosen->gain, 0);
  EXPECT_THAT(chosen->reason, HasSubstr(kLadderIsFree));
}

TEST(ReviewLadder, TakesALawWithoutAFixedCostForMeasured) {
  LadderLimits limits = kLimits;
  limits.rows = ComputedRows::OfBatch();
  CostState state{.rows = limits.rows};
  state.law[2] = 1e-6;  // seconds per token
  CostModel costs;
  costs.Restore(state);
  const LadderOptions options;
  const Ladder ladder = *BuildLadder(options, limits);
  const Traffic traffic = TrafficOf(LogNormalArrivals(2500, 0.4, 0.5, 3));
  EXPECT_EQ(ReviewLadder(options, kBatch, limits, ladder, costs, traffic, PlanCosts(), true).reason,
            kLadderIsFree);
  EXPECT_EQ(
      ReviewLadder(options, kBatch, limits, ladder, CostModel(), traffic, PlanCosts(), true).reason,
      "no step has been measured yet");
}

TEST(ReviewLadder, AdoptsAnotherLadderWhenTheTrafficChanges) {
  const LadderOptions options;
  const Ladder fitted_to_short =
      *Review(options, *BuildLadder(options, kLimits),
              TrafficOf(LogNormalArrivals(100, 0.3, 0.5, 1)), /*force=*/true)
           .ladder;
  const std::vector<Arrival> others = LogNormalArrivals(2500, 0.4, 0.5, 2);
  const LadderReview review = Review(options, fitted_to_short, TrafficOf(others));
  ASSERT_NE(review.ladder, nullptr) << review.reason;
  const LadderReview optimum = Review(options, *BuildLadder(options, kLimits), TrafficOf(others),
                                      /*force=*/true);
  const std::vector<Arrival> later = LogNormalArrivals(2500, 0.4, 0.5, 3);
  EXPECT_GT(EfficiencyOf(*review.ladder, later), 0.97 * EfficiencyOf(*optimum.ladder, later));
}

TEST(ReviewLadder, KeepsTheLadderIfCapturesCostMoreThanTheyGain) {
  const LadderOptions options;
  const Ladder geometric = *BuildLadder(options, kLimits);
  const Traffic traffic = TrafficOf(LogNormalArrivals(2500, 0.4, 0.5, 1));
  EXPECT_NE(Review(options, geometric, traffic, false, Costs(), PlanCosts(0.01)).ladder, nullptr);
  EXPECT_EQ(Review(options, geometric, traffic, false, Costs(), PlanCosts(1000)).ladder, nullptr);
}

TEST(ReviewLadder, ForgetsArrivalsOfManyHalfLivesAgo) {
  LadderOptions options;
  const Ladder geometric = *BuildLadder(options, kLimits);
  std::vector<Arrival> arrivals = LogNormalArrivals(100, 0.3, 0.5, 1);
  const std::vector<Arrival> later = LogNormalArrivals(2500, 0.4, 0.5, 2);
  for (size_t i = arrivals.size() / 2; i < arrivals.size(); ++i) {
    arrivals[i] = later[i];
    arrivals[i].at += hours(1);
  }
  const Traffic fresh = TrafficOf(std::span(arrivals).subspan(arrivals.size() / 2));
  const LadderReview expected = Review(options, geometric, fresh);
  ASSERT_NE(expected.ladder, nullptr);
  const LadderReview review = Review(options, geometric, TrafficOf(arrivals));
  ASSERT_NE(review.ladder, nullptr);
  EXPECT_EQ(*review.ladder, *expected.ladder);
}

TEST(ReviewLadder, KeepsTheLadderIfPaddingCostsNothing) {
  const LadderOptions options;
  const Ladder geometric = *BuildLadder(options, kLimits);
  const Traffic traffic = TrafficOf(LogNormalArrivals(2500, 0.4, 0.5, 1));
  const LadderReview review = Review(options, geometric, traffic, false, Costs(0, kTokenSeconds));
  EXPECT_EQ(review.ladder, nullptr) << review.reason;
}

// A gain estimated from a few arrivals may be due to chance.
TEST(ReviewLadder, FewerArrivalsNeedALargerGain) {
  const LadderOptions options;
  const Ladder settled = *Review(options, *BuildLadder(options, kLimits),
                                 TrafficOf(LogNormalArrivals(600, 1.2, 0.5, 1)), /*force=*/true)
                              .ladder;
  int changes = 0;
  for (uint64_t seed = 2; seed < 42; ++seed) {
    std::vector<Arrival> few = LogNormalArrivals(600, 1.2, 0.5, seed);
    few.resize(256);
    if (Review(options, settled, TrafficOf(few)).ladder != nullptr) ++changes;
  }
  EXPECT_LE(changes, 10);
}

TEST(ReviewLadder, GivesTheReasonIfNothingWasReviewed) {
  const LadderOptions options;
  const Ladder ladder = *BuildLadder(options, kLimits);
  EXPECT_THAT(Review(options, ladder, Traffic(seconds(1))).reason, HasSubstr("arrived"));
  const Traffic traffic = TrafficOf(LogNormalArrivals(2500, 0.4, 0.5, 1));
  const LadderReview review = Review(options, ladder, traffic, true, CostModel());
  EXPECT_EQ(review.ladder, nullptr);
  EXPECT_THAT(review.reason, HasSubstr("measured"));
}

TEST(ReviewLadder, KeepsTheLadderWithinItsLimits) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const auto draw = [&](int64_t low, int64_t high) {
      return static_cast<int32_t>(low + static_cast<int64_t>(random() % (high - low + 1)));
    };
    LadderOptions options;
    options.max_buckets = draw(1, 24);
    options.min_tokens = draw(1, 600);
    options.min_bucket_usage = draw(0, 1) * 0.01 * draw(0, 8);
    if (draw(0, 1) == 1) options.memory_limit_bytes = 100 * draw(16384, 60000);
    std::vector<Arrival> arrivals =
        Arrivals(LogNormalLengths(draw(1, 1500), draw(20, 3000), 0.1 * draw(1, 15), seed),
                 0.1 * draw(1, 12), seed);
    for (Arrival& arrival : arrivals) {
      arrival.priority = draw(1, 3);
      if (draw(0, 3) == 0) arrival.deadline = arrival.at + std::chrono::milliseconds(draw(0, 3));
    }
    const Ladder present = *BuildLadder(options, kLimits);
    const Traffic traffic = TrafficOf(arrivals);
    const bool force = draw(0, 1) == 1;
    const LadderReview review = Review(options, present, traffic, force);
    EXPECT_FALSE(review.reason.empty());
    EXPECT_EQ(Review(options, present, traffic, force).gain, review.gain);

    const Ladder& ladder = review.ladder ? *review.ladder : present;
    int64_t bytes = 0;
    for (const Bucket& bucket : ladder.buckets()) bytes += PlanCosts().memory_bytes(bucket);
    if (options.memory_limit_bytes > 0) {
      EXPECT_LE(bytes, options.memory_limit_bytes);
    }
    EXPECT_LE(ladder.buckets().size(), static_cast<size_t>(options.max_buckets));
    EXPECT_EQ(ladder.largest(), present.largest());
    EXPECT_GE(ladder.buckets().front().tokens, std::min(options.min_tokens, kLimits.max_tokens));
    if (review.ladder) {
      EXPECT_NE(ladder, present);
      EXPECT_EQ(review.diff.added.size(), CompareLadders(present, ladder).added.size());
    }
  }
}

// The prompts have 100 tokens; only the steps that generate are smaller.
TEST(ReviewLadder, CountsTheStepsThatGenerate) {
  std::vector<Arrival> arrivals = Arrivals(std::vector<int32_t>(500, 100), 0.05, /*seed=*/1);
  for (Arrival& arrival : arrivals) arrival.steps = 50;
  const LadderOptions options{.min_tokens = 8, .max_buckets = 6};
  const Ladder present = MakePackedLadder({512}, kLimits);
  const LadderReview review = Review(options, present, TrafficOf(arrivals), /*force=*/true);
  ASSERT_NE(review.ladder, nullptr) << review.reason;
  EXPECT_LT(review.ladder->buckets().front().tokens, 100);
  EXPECT_GT(review.bucket_fill_after, review.bucket_fill_before);
}

// Each step of the arrivals is replayed several times, so even a few arrivals with very long
// answers must be cut.
TEST(ReviewLadder, LimitsTheReplayedSteps) {
  std::vector<Arrival> arrivals = Arrivals(std::vector<int32_t>(8000, 10), 0.5, /*seed=*/1);
  for (Arrival& arrival : arrivals) arrival.steps = 1 << 20;
  const LadderOptions options;
  const Ladder present = *BuildLadder(options, kLimits);
  EXPECT_FALSE(Review(options, present, TrafficOf(arrivals)).reason.empty());
}

TEST(ReviewLadder, OtherStrategiesOnlyLoseUnusedBuckets) {
  LadderOptions options{.strategy = StrategyKind::kFixed, .fixed_tokens = {100, 1000, 4000}};
  const Ladder present = *BuildLadder(options, kLimits);
  Traffic traffic = TrafficOf(LogNormalArrivals(2500, 0.4, 0.5, 1));
  const auto run = [&](int32_t tokens, int batches) {
    for (int i = 0; i < batches; ++i) {
      traffic.OnBatch({.tokens = tokens, .sequences = 1, .longest = tokens}, MonoTime(hours(1)));
    }
  };
  run(50, 990);
  run(3000, 10);
  EXPECT_EQ(Review(options, present, traffic, /*force=*/true).ladder, nullptr);
  options.min_bucket_usage = 0.005;
  const LadderReview review = Review(options, present, traffic);
  ASSERT_NE(review.ladder, nullptr);
  EXPECT_EQ(*review.ladder, MakePackedLadder({100, 4000}, kLimits));
  EXPECT_EQ(review.diff.removed.size(), 1u);
}

TEST(FitLadder, BeatsTheGeometricLadderOnOtherLengths) {
  for (const double sigma : {0.1, 0.4, 1.2}) {
    for (const int32_t max_buckets : {4, 8, 16}) {
      SCOPED_TRACE(::testing::Message() << "sigma " << sigma << " buckets " << max_buckets);
      const LadderOptions options{.max_buckets = max_buckets};
      const Ladder geometric = *BuildLadder(options, kLimits);
      for (const CostModel& costs : {Costs(), CostModel()}) {
        const Ladder fitted =
            FitLadder(LogNormalLengths(4000, 900, sigma, 1), options, kBatch, kLimits, costs);
        EXPECT_LE(fitted.buckets().size(), static_cast<size_t>(max_buckets));
        EXPECT_EQ(fitted.largest(), geometric.largest());
        for (const double load : {0.5, 0.85}) {
          const std::vector<Arrival> arrivals =
              Arrivals(LogNormalLengths(8000, 900, sigma, 2), load, 3);
          EXPECT_GT(EfficiencyOf(fitted, arrivals), EfficiencyOf(geometric, arrivals)) << load;
        }
      }
    }
  }
}

TEST(FitLadder, AcceptsAnEmptyListOfLengths) {
  EXPECT_EQ(FitLadder({}, {}, {}, kLimits, Costs()).largest().tokens, kLimits.max_tokens);
}

}  // namespace
}  // namespace sluice
