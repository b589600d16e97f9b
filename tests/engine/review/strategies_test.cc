#include "engine/review/strategies.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "engine/review/ladder_benchmark.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/table.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

constexpr double kStepSeconds = 60e-6;

// A comparison on a device whose step has this cost per token of the bucket and per computed
// token.
StrategyContest ContestOf(double bucket_token_seconds, double computed_token_seconds) {
  StrategyContest contest{
      .limits = {.max_tokens = 4096, .max_sequences = 128},
      .plan_cost = {
          .capture_seconds = [](const Bucket&) { return 0.05; },
          .memory_bytes = [](const Bucket& bucket) { return int64_t{8} * bucket.tokens; }}};
  CostState law;
  law.law[0] = kStepSeconds;
  law.law[1] = bucket_token_seconds;
  law.law[2] = computed_token_seconds;
  contest.costs.Restore(law);
  return contest;
}

std::vector<Arrival> ArrivalsOf(std::span<const int32_t> lengths, double gap_seconds,
                                uint64_t seed) {
  std::mt19937_64 random(seed);
  std::exponential_distribution<double> gap(1 / gap_seconds);
  double now = 1;
  std::vector<Arrival> arrivals;
  for (const int32_t length : lengths) {
    now += gap(random);
    arrivals.push_back({.at = MonoTime(nanoseconds(std::llround(now * 1e9))), .tokens = length});
  }
  return arrivals;
}

std::vector<int32_t> TwoLengths(int count) {
  std::vector<int32_t> lengths;
  for (int i = 0; i < count; ++i) lengths.push_back(i % 2 == 0 ? 70 : 290);
  return lengths;
}

const StrategyTrial& Named(const StrategyTrials& trials, std::string_view name) {
  const auto found = std::ranges::find(trials.trials, name, &StrategyTrial::name);
  EXPECT_NE(found, trials.trials.end()) << name;
  return *found;
}

TEST(TryStrategies, ChoosesALadderFittedToLengthsBetweenTheOtherBuckets) {
  const StrategyContest contest = ContestOf(1e-6, 0);
  const std::vector<Arrival> arrivals = ArrivalsOf(TwoLengths(4000), 2e-3, 5);
  const StrategyTrials trials = *TryStrategies(contest, arrivals, nullptr);
  EXPECT_EQ(trials.arrivals, 2000);
  EXPECT_EQ(trials.trials.front().name, "one bucket");
  EXPECT_EQ(trials.trials.front().gain, 0);
  EXPECT_THAT(trials.best, HasSubstr("adaptive"));
  EXPECT_GT(Named(trials, trials.best).gain, Named(trials, "geometric 2").gain);
  for (const StrategyTrial& trial : trials.trials) {
    SCOPED_TRACE(trial.name);
    EXPECT_EQ(trial.captures, std::ssize(trial.buckets));
    EXPECT_DOUBLE_EQ(trial.capture_seconds, 0.05 * static_cast<double>(trial.captures));
    EXPECT_LE(trial.p50_latency_seconds, trial.p99_latency_seconds);
    EXPECT_GT(trial.bucket_fill, 0);
    // A step takes 60 us and 1 us for each token of its bucket.
    const double steps = kStepSeconds * static_cast<double>(trial.batches);
    EXPECT_NEAR(trial.wasted_share,
                (1 - trial.bucket_fill) * (trial.device_seconds - steps) / trial.device_seconds,
                1e-6);
    EXPECT_TRUE(Apply(trial.choice, contest.ladder).ok());
  }
}

TEST(TryStrategies, KeepsOneBucketIfNoLadderGains) {
  const StrategyTrials trials =
      *TryStrategies(ContestOf(0, 1e-6), ArrivalsOf(TwoLengths(2000), 2e-3, 6), nullptr);
  EXPECT_EQ(trials.best, "one bucket");
  EXPECT_FALSE(trials.ladder_is_free) << "the device computes rows of buckets";
}

TEST(TryStrategies, RunsIfTheLawHasOnlyATermOfTheContext) {
  StrategyContest contest = ContestOf(0, 0);
  CostState law = contest.costs.state();
  law.law[0] = 0;
  law.law[3] = 1e-7;
  contest.costs.Restore(law);
  EXPECT_TRUE(TryStrategies(contest, ArrivalsOf(TwoLengths(200), 2e-3, 6), nullptr).ok());
}

// A law that was learned with noise may have a term of the bucket, but it does not count here.
TEST(TryStrategies, TriesNothingOnADeviceThatComputesTheRowsOfABatch) {
  StrategyContest contest = ContestOf(1e-6, 1e-6);
  contest.limits.rows = ComputedRows::OfBatch();
  CostState law = contest.costs.state();
  law.rows = contest.limits.rows;
  contest.costs.Restore(law);
  const std::vector<Arrival> arrivals = ArrivalsOf(TwoLengths(2000), 2e-3, 6);
  const Ladder present = *BuildLadder({.ratio = 4, .max_buckets = 3}, contest.limits);
  const StrategyTrials trials = *TryStrategies(contest, arrivals, &present);
  EXPECT_TRUE(trials.ladder_is_free);
  ASSERT_EQ(trials.trials.size(), 1u);
  EXPECT_EQ(trials.best, "present");
  EXPECT_EQ(trials.trials.front().wasted_share, 0);
  EXPECT_EQ(TryStrategies(contest, arrivals, nullptr)->trials.front().name, "one bucket");
  contest.batch.policy = PolicyKind::kPaddedBuckets;
  contest.limits.max_positions = 512;
  EXPECT_FALSE(TryStrategies(contest, arrivals, nullptr)->ladder_is_free)
      << "rectangles are computed whole";
}

// Runs the ladder on other arrivals of the same kind, on a device with these true costs. Returns
// the cost that trials compare: sqrt(device time * mean latency).
double CostOf(const StrategyContest& contest, std::span<const Bucket> buckets,
              std::span<const Arrival> arrivals) {
  const LadderBenchmark run = BenchmarkLadder(Ladder({buckets.begin(), buckets.end()}), arrivals,
                                              contest.batch, contest.costs);
  return std::sqrt(run.device_seconds * run.mean_latency_seconds);
}

struct Workload {
  double median, sigma, gap_seconds;
};

std::vector<Arrival> DrawArrivals(const Workload& workload, int count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::lognormal_distribution<double> length(std::log(workload.median), workload.sigma);
  std::vector<int32_t> lengths(count);
  for (int32_t& each : lengths) {
    each = static_cast<int32_t>(std::clamp(length(random), 1.0, 2000.0));
  }
  return ArrivalsOf(lengths, workload.gap_seconds, seed + 1);
}

// Seeded workloads on a device that computes whole buckets, whose present ladder is one bucket or
// has a ratio of 4. If a ladder is recommended, running it on later arrivals confirms the gain
// within the margin. If a gain above 5 % can be reached, at least 9 of 10 get a recommendation.
TEST(TryStrategies, RecommendsConfirmedGainsAndFindsReachableOnes) {
  constexpr int kSeeds = 40;
  int reachable = 0, advised = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const auto draw = [&](double low, double high) {
      return std::uniform_real_distribution<double>(low, high)(random);
    };
    StrategyContest contest = ContestOf(draw(0.05e-6, 1e-6), draw(0, 0.3e-6));
    if (random() % 2 == 0) {
      contest.limits.rows = ComputedRows::OfLibrary();
      CostState law = contest.costs.state();
      law.rows = contest.limits.rows;
      contest.costs.Restore(law);
    }
    contest.plan_cost.capture_seconds = [](const Bucket&) { return 0.6e-3; };
    const Workload workload{draw(20, 600), draw(0.2, 1), draw(0.3e-3, 3e-3)};
    const std::vector<Arrival> seen = DrawArrivals(workload, 4000, 1000 * seed);
    const std::vector<Arrival> later = DrawArrivals(workload, 4000, 1000 * seed + 7);
    const LadderOptions coarse{.strategy = StrategyKind::kGeometric,
                               .ratio = 4,
                               .max_buckets = random() % 2 == 0 ? 1 : 16};
    const Ladder present = *BuildLadder(coarse, contest.limits);
    const StrategyTrials trials = *TryStrategies(contest, seen, &present);
    const double before = CostOf(contest, present.buckets(), later);
    double best_gain = 0;
    for (const StrategyTrial& trial : trials.trials) {
      best_gain = std::max(best_gain, 1 - CostOf(contest, trial.buckets, later) / before);
    }
    const StrategyTrial& taken = Named(trials, trials.best);
    if (&taken != &trials.trials.front()) {
      const double gain = 1 - CostOf(contest, taken.buckets, later) / before;
      EXPECT_GE(gain, taken.gain - trials.margin) << taken.name << " claims " << taken.gain;
      EXPECT_GT(gain, 0);
    }
    if (best_gain <= 0.05) continue;
    ++reachable;
    if (&taken != &trials.trials.front()) ++advised;
  }
  EXPECT_GE(reachable, kSeeds / 3) << "the workloads are too easy";
  EXPECT_GE(advised, (9 * reachable + 9) / 10) << "of " << reachable;
}

struct GainRow {
  double gain = 0;
  int64_t plan_bytes = 0;
};
// Trials with these gains over the first one, and a margin of 0.1.
struct BestTrialRow {
  const char* name;
  std::vector<GainRow> others;
  int best = 0;  // from 0, the first trial
};
class BestTrialTable : public TableTest<BestTrialRow> {};

TEST_P(BestTrialTable, IsNamed) {
  StrategyTrials trials;
  trials.margin = 0.1;
  trials.trials.resize(1 + row().others.size());
  for (size_t i = 0; i < trials.trials.size(); ++i) {
    const GainRow figures = i == 0 ? GainRow{.gain = 0, .plan_bytes = 50} : row().others[i - 1];
    trials.trials[i].name = std::to_string(i);
    trials.trials[i].gain = figures.gain;
    trials.trials[i].plan_bytes = figures.plan_bytes;
  }
  EXPECT_EQ(BestTrial(trials), std::to_string(row().best));
}

const BestTrialRow kBestTrialRows[] = {
    {.name = "TheOnlyOne", .others = {}, .best = 0},
    {.name = "NoneThatLoses", .others = {{-0.3, 1}, {-0.01, 1}}, .best = 0},
    {.name = "NoneThatMayGainByChance", .others = {{0.05, 1}, {0.1, 1}}, .best = 0},
    {.name = "OneThatGainsMore", .others = {{0.11, 90}}, .best = 1},
    {.name = "TheOneThatGainsMost", .others = {{0.2, 1}, {0.4, 90}}, .best = 2},
    {.name = "TheLeastMemoryWithinTheMargin",
     .others = {{0.4, 90}, {0.31, 60}, {0.35, 70}},
     .best = 2},
    {.name = "TheLargestGainOfEqualMemory",
     .others = {{0.31, 60}, {0.4, 60}, {0.35, 60}},
     .best = 2},
    {.name = "NotTheFirstThoughItIsWithinTheMargin",
     .others = {{0.105, 90}, {0.01, 60}},
     .best = 2},
};
SLUICE_TABLE(BestTrialTable, kBestTrialRows);

double GainOf(const StrategyTrial& trial, const StrategyTrial& present) {
  return 1 - std::sqrt(trial.device_seconds / present.device_seconds *
                       (trial.mean_latency_seconds / present.mean_latency_seconds));
}

TEST(TryStrategies, ChoosesALadderWithAGainOrThePresentOne) {
  int kept = 0;
  constexpr int kSeeds = 24;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const StrategyContest contest =
        ContestOf(random() % 3 == 0 ? 0 : 0.1e-6 * static_cast<double>(random() % 20),
                  0.1e-6 * static_cast<double>(1 + random() % 5));
    std::vector<int32_t> lengths(200 + random() % 1500);
    for (int32_t& length : lengths) length = 1 + static_cast<int32_t>(random() % 800);
    const Ladder present = MakePackedLadder(
        {static_cast<int32_t>(1 + random() % 4095), static_cast<int32_t>(1 + random() % 4095)},
        contest.limits);
    const StrategyTrials trials =
        *TryStrategies(contest, ArrivalsOf(lengths, 1e-3, seed), &present);
    EXPECT_EQ(trials.trials.front().name, "present");
    EXPECT_EQ(trials.trials.front().captures, 0);
    EXPECT_EQ(trials.best, BestTrial(trials));
    for (const StrategyTrial& trial : trials.trials) {
      EXPECT_NEAR(trial.gain, GainOf(trial, trials.trials.front()), 1e-9) << trial.name;
    }
    kept += trials.best == "present" ? 1 : 0;
  }
  EXPECT_GT(kept, 0);
  EXPECT_LT(kept, kSeeds - 4) << "the present ladders were almost always kept";
}

TEST(TryStrategies, TriesLaddersWithinTheMemoryLimit) {
  for (const PolicyKind policy : {PolicyKind::kPacked, PolicyKind::kPaddedBuckets}) {
    StrategyContest contest = ContestOf(1e-6, 0);
    contest.batch.policy = policy;
    contest.limits.max_positions = 1024;
    contest.ladder.memory_limit_bytes = 3 * 8 * contest.limits.max_tokens;
    const StrategyTrials trials =
        *TryStrategies(contest, ArrivalsOf(TwoLengths(1000), 2e-3, 8), nullptr);
    for (const StrategyTrial& trial : trials.trials) {
      EXPECT_LE(trial.plan_bytes, contest.ladder.memory_limit_bytes) << trial.name;
    }
  }
}

TEST(TryStrategies, ReturnsAnErrorWithTheReason) {
  const std::vector<Arrival> arrivals = ArrivalsOf(TwoLengths(400), 1e-3, 1);
  StrategyContest contest = ContestOf(1e-6, 0);
  EXPECT_THAT(TryStrategies(contest, std::span(arrivals).first(99), nullptr).status().message(),
              HasSubstr("only 99 sequences"));
  contest.batch.policy = PolicyKind::kStaticPadded;
  EXPECT_THAT(TryStrategies(contest, arrivals, nullptr).status().message(),
              HasSubstr("one column"));
  contest = ContestOf(0, 0);
  contest.costs = CostModel();
  EXPECT_THAT(TryStrategies(contest, arrivals, nullptr).status().message(),
              HasSubstr("no step has been measured"));
}

TEST(TryStrategies, TriesTheColumnsOfAPaddedLadder) {
  StrategyContest contest = ContestOf(1e-6, 1e-6);
  contest.batch.policy = PolicyKind::kPaddedBuckets;
  contest.limits.max_positions = 1024;
  const StrategyTrials trials =
      *TryStrategies(contest, ArrivalsOf(TwoLengths(2000), 2e-3, 7), nullptr);
  EXPECT_THAT(trials.best, HasSubstr("adaptive"));
  const StrategyTrial& best = Named(trials, trials.best);
  EXPECT_GT(best.gain, Named(trials, "geometric 2").gain);
  EXPECT_EQ(std::ranges::count(best.buckets, 70, &Bucket::positions) > 0, true);
}

}  // namespace
}  // namespace sluice
