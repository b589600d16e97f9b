#include "engine/review/strategies.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

constexpr double kStepSeconds = 60e-6;

// A contest on a device of which a step costs this much for each token of the bucket and each that
// it computes.
StrategyContest ContestOf(double bucket_token_seconds, double computed_token_seconds) {
  StrategyContest contest{
      .limits = {.max_tokens = 4096, .max_sequences = 128, .tile_tokens = 16},
      .prices = {.capture_seconds = [](const Bucket&) { return 0.05; },
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

TEST(TryStrategies, TakesALadderThatFitsLengthsBetweenTheOthersBuckets) {
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
    EXPECT_GT(trial.padding_efficiency, 0);
    EXPECT_TRUE(Apply(trial.choice, contest.ladder).ok());
  }
}

// A plan that computes the rows that are there costs the same in any bucket.
TEST(TryStrategies, KeepsOneBucketWhereNoLadderGains) {
  const StrategyTrials trials =
      *TryStrategies(ContestOf(0, 1e-6), ArrivalsOf(TwoLengths(2000), 2e-3, 6), nullptr);
  EXPECT_EQ(trials.best, "one bucket");
}

// Returns the name that the figures of the trials call for: the ladder in use, unless another gains
// more than chance; then, of those that gain as much as the best but for chance, the one of the
// least memory.
std::string BestByFigures(const StrategyTrials& trials) {
  const StrategyTrial& present = trials.trials.front();
  const auto gain_of = [&](const StrategyTrial& trial) {
    return 1 - std::sqrt(trial.device_seconds / present.device_seconds *
                         (trial.mean_latency_seconds / present.mean_latency_seconds));
  };
  double most = 0;
  for (const StrategyTrial& trial : trials.trials) {
    EXPECT_NEAR(trial.gain, gain_of(trial), 1e-9) << trial.name;
    most = std::max(most, gain_of(trial));
  }
  const StrategyTrial* best = &present;
  if (most <= trials.margin) return best->name;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const StrategyTrial& trial : trials.trials) {
    const double gain = gain_of(trial);
    if (gain <= 0 || gain < most - trials.margin || trial.plan_bytes >= least) continue;
    least = trial.plan_bytes;
    best = &trial;
  }
  return best->name;
}

TEST(TryStrategies, NamesTheLeastMemoryAmongTheLaddersThatGainMostAndTheOneInUseIfNoneGains) {
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
    EXPECT_EQ(trials.best, BestByFigures(trials));
    kept += trials.best == "present" ? 1 : 0;
  }
  EXPECT_GT(kept, 0);
  EXPECT_LT(kept, kSeeds - 4) << "the ladders in use were hardly ever worth a change";
}

TEST(TryStrategies, SaysWhyItCannot) {
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
              HasSubstr("no step was measured"));
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
