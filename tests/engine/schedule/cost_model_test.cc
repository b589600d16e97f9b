#include "engine/schedule/cost_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace sluice {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The true costs in seconds per unit, in the order of the law.
constexpr double kTruth[kCostTerms] = {60e-6, 0.02e-6, 0.03e-6, 0.00001e-6, 0.1e-6, 1e-6, 4e-6};

double TrueCost(const StepShape& step) {
  return kTruth[0] + kTruth[1] * step.bucket.tokens + kTruth[2] * step.computed_tokens +
         kTruth[3] * static_cast<double>(step.context_tokens) +
         kTruth[4] * step.distinct_positions + kTruth[5] * step.sampled_rows +
         kTruth[6] * step.distinct_adapters;
}

StepShape RandomStep(std::mt19937_64* random) {
  const int32_t tokens = 64 << ((*random)() % 8);
  StepShape step{.bucket = {.tokens = tokens, .sequences = 64}};
  step.computed_tokens = tokens / 2 + static_cast<int32_t>((*random)() % (tokens / 2));
  step.sampled_rows = 1 + static_cast<int32_t>((*random)() % 64);
  step.distinct_positions = 1 + step.computed_tokens / step.sampled_rows;
  step.distinct_adapters = static_cast<int32_t>((*random)() % (1 + step.sampled_rows));
  step.context_tokens = int64_t{step.computed_tokens} * static_cast<int64_t>((*random)() % 2000);
  return step;
}

void Train(CostModel* costs, std::mt19937_64* random, int steps, double scale = 1) {
  std::normal_distribution<double> noise(1, 0.02);
  for (int i = 0; i < steps; ++i) {
    const StepShape step = RandomStep(random);
    costs->Observe(step, scale * TrueCost(step) * noise(*random));
  }
}

// Returns the largest relative error over random steps.
double WorstError(const CostModel& costs, std::mt19937_64* random, double scale = 1) {
  double worst = 0;
  for (int i = 0; i < 500; ++i) {
    const StepShape step = RandomStep(random);
    const double truth = scale * TrueCost(step);
    worst = std::max(worst, std::abs(costs.Estimate(step) - truth) / truth);
  }
  return worst;
}

// The true cost has a term for each expert that a step reads. Decode steps of few tokens read most
// of their matrices for one row each, which a law of tokens cannot express.
TEST(CostModel, LearnsTheCostOfTheExpertsThatAStepReads) {
  const ExpertCounts counts = {.experts = 64, .chosen = 4};
  const auto step_of = [](int32_t tokens) {
    return StepShape{.bucket = {.tokens = 256, .sequences = 256},
                     .computed_tokens = tokens,
                     .distinct_positions = 1,
                     .sampled_rows = tokens};
  };
  const auto truth = [&](int32_t tokens) {
    return 1e-4 + 1e-5 * tokens + 1e-3 * ExpectedExperts(counts, tokens);
  };
  const auto worst = [&](CostModel costs) {
    std::mt19937_64 random(81);
    for (int i = 0; i < 2000; ++i) {
      const auto tokens = 1 + static_cast<int32_t>(random() % 256);
      costs.Observe(step_of(tokens), truth(tokens));
    }
    double error = 0;
    for (const int32_t tokens : {1, 2, 4, 8, 16, 64, 256}) {
      error = std::max(error, std::abs(costs.Estimate(step_of(tokens)) / truth(tokens) - 1));
    }
    return error;
  };
  EXPECT_LT(worst(CostModel(ComputedRows::OfBatch(), counts)), 0.05);
  EXPECT_GT(worst(CostModel(ComputedRows::OfBatch())), 0.2);
  CostModel restored;
  restored.Restore(CostModel(ComputedRows::OfBatch(), counts).state());
  EXPECT_LT(worst(restored), 0.05);
}

// The same tokens are dearer the more adapters they have, if the device's steps were.
TEST(CostModel, LearnsThatAMixOfAdaptersIsDearer) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  CostModel costs(ComputedRows::OfBatch());
  const auto step_of = [](int32_t adapters) {
    return StepShape{.bucket = {.tokens = 512, .sequences = 64},
                     .computed_tokens = 256,
                     .sampled_rows = 32,
                     .distinct_adapters = adapters};
  };
  const auto truth = [](const StepShape& step) {
    return 100e-6 + 0.5e-6 * step.computed_tokens + 20e-6 * step.distinct_adapters;
  };
  for (int i = 0; i < 500; ++i) {
    StepShape step = step_of(0);
    step.computed_tokens = 32 + static_cast<int32_t>(random() % 400);
    step.sampled_rows = 1 + static_cast<int32_t>(random() % 32);
    costs.Observe(step, truth(step));
  }
  EXPECT_EQ(costs.Estimate(step_of(32)), costs.Estimate(step_of(1))) << "no step had adapters";
  EXPECT_EQ(costs.AdaptersOf(32), 0);
  for (int i = 0; i < 500; ++i) {
    StepShape step = step_of(static_cast<int32_t>(random() % 33));
    step.computed_tokens = 32 + static_cast<int32_t>(random() % 400);
    costs.Observe(step, truth(step));
  }
  for (const int32_t adapters : {0, 1, 8, 32}) {
    const StepShape step = step_of(adapters);
    EXPECT_NEAR(costs.Estimate(step), truth(step), 0.03 * truth(step)) << adapters;
  }
  EXPECT_GT(costs.AdaptersOf(32), 8);
  EXPECT_LE(costs.AdaptersOf(32), 32);
}

TEST(CostModel, ExpectsTheExpertsOfIndependentRows) {
  const ExpertCounts counts = {.experts = 8, .chosen = 2};
  EXPECT_EQ(ExpectedExperts({}, 5), 0);
  EXPECT_EQ(ExpectedExperts(counts, 0), 0);
  EXPECT_DOUBLE_EQ(ExpectedExperts(counts, 1), 2);
  EXPECT_DOUBLE_EQ(ExpectedExperts(counts, 2), 8 * (1 - 0.75 * 0.75));
  EXPECT_NEAR(ExpectedExperts(counts, 1000), 8, 1e-9);
  EXPECT_DOUBLE_EQ(ExpectedExperts({.experts = 4, .chosen = 4}, 1), 4);
}

TEST(CostModel, EstimatesZeroBeforeAnyStepRan) {
  const CostModel costs;
  EXPECT_EQ(costs.Estimate({.bucket = {.tokens = 16, .sequences = 16}}), 0);
  EXPECT_EQ(costs.EstimateDrain(1000, {.tokens = 16, .sequences = 16}), 0);
}

// The bucket would explain part of the noise if its term were fitted.
TEST(CostModel, TheBucketHasNoTermIfTheDeviceComputesTheRowsOfTheBatch) {
  std::mt19937_64 random(29);
  CostModel costs(ComputedRows::OfBatch());
  Train(&costs, &random, 3000);
  EXPECT_EQ(costs.state().law[1], 0);
  CostModel law(ComputedRows::OfBatch());
  CostState state = costs.state();
  state.buckets.clear();  // without corrections
  state.law[1] = 1;       // from an earlier version
  law.Restore(state);
  const StepShape small{.bucket = {.tokens = 64, .sequences = 1}, .computed_tokens = 50};
  StepShape large = small;
  large.bucket.tokens = 8192;
  EXPECT_EQ(law.Estimate(small), law.Estimate(large));
}

TEST(CostModel, LearnsTheCostOfTheRowsThatALibraryComputes) {
  std::mt19937_64 random(30);
  CostModel costs(ComputedRows::OfLibrary());
  for (int i = 0; i < 2000; ++i) {
    const auto tokens = static_cast<int32_t>(1 + random() % 4000);
    const StepShape step{.bucket = {.tokens = tokens, .sequences = 1}, .computed_tokens = 1};
    costs.Observe(step, 60e-6 + 0.1e-6 * static_cast<double>(TriedRows(tokens)));
  }
  const auto estimate = [&](int32_t tokens) {
    return costs.Estimate({.bucket = {.tokens = tokens, .sequences = 2}, .computed_tokens = 1});
  };
  EXPECT_NEAR(estimate(1047), 60e-6 + 0.1e-6 * 1280, 1e-7);
  EXPECT_EQ(estimate(1047), estimate(1280));
}

TEST(CostModel, IgnoresInvalidTimes) {
  CostModel costs;
  for (double seconds : {0.0, -1.0, kNaN, kInfinity}) {
    costs.Observe({.bucket = {.tokens = 16, .sequences = 16}}, seconds);
  }
  EXPECT_TRUE(costs.state().buckets.empty());
}

TEST(CostModel, LearnsTheLaw) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    CostModel costs;
    Train(&costs, &random, 2000);
    EXPECT_LT(WorstError(costs, &random), 0.1);
    const StepShape unseen{.bucket = {.tokens = 3000, .sequences = 64},
                           .computed_tokens = 2900,
                           .context_tokens = 2900 * 700,
                           .distinct_positions = 300,
                           .sampled_rows = 10};
    EXPECT_NEAR(costs.Estimate(unseen) / TrueCost(unseen), 1, 0.1);
  }
}

TEST(CostModel, FollowsADeviceThatBecomesSlower) {
  // The error of the worst of 500 steps lies between 0.04 and 0.16, by the seed.
  std::vector<double> worst;
  for (int seed = 0; seed < 21; ++seed) {
    std::mt19937_64 random(seed);
    CostModel costs;
    Train(&costs, &random, 3000);
    Train(&costs, &random, 3000, 3.0);
    worst.push_back(WorstError(costs, &random, 3.0));
  }
  std::sort(worst.begin(), worst.end());
  EXPECT_LT(worst[worst.size() / 2], 0.1);
}

TEST(CostModel, OneOutlierMovesLittle) {
  for (double factor : {100.0, 0.01}) {
    SCOPED_TRACE(factor);
    std::mt19937_64 random(6);
    CostModel costs;
    Train(&costs, &random, 500);
    const double before = WorstError(costs, &random);
    const StepShape step = RandomStep(&random);
    costs.Observe(step, factor * TrueCost(step));
    EXPECT_LT(WorstError(costs, &random), before + 0.05);
  }
}

TEST(CostModel, ForgetsAnOutlierInTheFirstStep) {
  std::mt19937_64 random(7);
  CostModel costs;
  const StepShape step = RandomStep(&random);
  costs.Observe(step, 100 * TrueCost(step));
  Train(&costs, &random, 500);
  EXPECT_LT(WorstError(costs, &random), 0.1);
}

TEST(CostModel, CorrectsABucketThatDiffersFromTheLaw) {
  CostModel costs;
  const Bucket odd{.tokens = 300, .sequences = 64};
  for (int i = 0; i < 200; ++i) {
    for (int32_t tokens : {100, 200, 300, 400, 500}) {
      const Bucket bucket{.tokens = tokens, .sequences = 64};
      const double law = 50e-6 + 1e-6 * tokens;
      costs.Observe({.bucket = bucket, .computed_tokens = tokens}, bucket == odd ? 2 * law : law);
    }
  }
  EXPECT_NEAR(costs.Estimate({.bucket = odd, .computed_tokens = 300}), 700e-6, 20e-6);
  const Bucket neighbour{.tokens = 400, .sequences = 64};
  EXPECT_NEAR(costs.Estimate({.bucket = neighbour, .computed_tokens = 400}), 450e-6, 20e-6);
}

TEST(CostModel, EstimatesGrowWithTheStep) {
  std::mt19937_64 random(8);
  CostModel costs;
  std::uniform_real_distribution<double> any(1e-6, 1e-2);  // follows no law at all
  for (int i = 0; i < 1000; ++i) costs.Observe(RandomStep(&random), any(random));
  for (int i = 0; i < 1000; ++i) {
    const StepShape step = RandomStep(&random);
    StepShape larger = step;
    larger.computed_tokens += static_cast<int32_t>(random() % 50);
    larger.context_tokens += static_cast<int64_t>(random() % 5000);
    larger.distinct_positions += static_cast<int32_t>(random() % 50);
    larger.distinct_adapters += static_cast<int32_t>(random() % 50);
    larger.sampled_rows += static_cast<int32_t>(random() % 5);
    EXPECT_LE(costs.Estimate(step), costs.Estimate(larger));
  }
}

TEST(CostModel, EstimatesAreCorrectIfTermsNeverVary) {
  CostModel costs;
  for (int i = 0; i < 300; ++i) {
    const int32_t tokens = 1000 * (1 + i % 8);
    costs.Observe({.bucket = {.tokens = tokens, .sequences = 8},
                   .computed_tokens = tokens,
                   .context_tokens = 500 * int64_t{tokens},
                   .distinct_positions = 1000,
                   .sampled_rows = 8},
                  60e-6 + 0.04e-6 * tokens);
  }
  const StepShape between{.bucket = {.tokens = 4500, .sequences = 8},
                          .computed_tokens = 4500,
                          .context_tokens = 500 * 4500,
                          .distinct_positions = 1000,
                          .sampled_rows = 8};
  EXPECT_NEAR(costs.Estimate(between), 240e-6, 5e-6);
}

TEST(CostModel, TheDrainTimeIsTheTimeOfFullBatchesAndARest) {
  CostModel costs;
  const Bucket largest{.tokens = 1000, .sequences = 64};
  for (int i = 0; i < 500; ++i) {
    for (int32_t tokens : {100, 400, 700, 1000}) {
      costs.Observe({.bucket = largest, .computed_tokens = tokens}, 50e-6 + 1e-6 * tokens);
    }
  }
  EXPECT_EQ(costs.EstimateDrain(0, largest), 0);
  EXPECT_NEAR(costs.EstimateDrain(300, largest), 350e-6, 5e-6);
  EXPECT_NEAR(costs.EstimateDrain(3300, largest), 3 * 1050e-6 + 350e-6, 50e-6);
}

// Steps that generate are many and short and sample every token, but most tokens are in prompts.
TEST(CostModel, TheDrainTimeUsesTheAverageTokenNotTheAverageStep) {
  std::mt19937_64 random(12);
  const auto between = [&](int32_t least, int32_t most) {
    return std::uniform_int_distribution<int32_t>(least, most)(random);
  };
  CostModel costs;
  const Bucket small{.tokens = 16, .sequences = 16}, largest{.tokens = 1000, .sequences = 64};
  double computed = 0, sampled = 0;
  const auto run = [&](const StepShape& step) {
    computed += step.computed_tokens;
    sampled += step.sampled_rows;
    costs.Observe(step, 50e-6 + 1e-6 * step.computed_tokens + 20e-6 * step.sampled_rows);
  };
  for (int i = 0; i < 1000; ++i) {
    for (int decode = 0; decode < 10; ++decode) {
      const int32_t tokens = between(1, 16);
      run({.bucket = small, .computed_tokens = tokens, .sampled_rows = tokens});
    }
    run({.bucket = largest, .computed_tokens = between(400, 1000), .sampled_rows = between(1, 40)});
  }
  const double share = sampled / computed;
  ASSERT_LT(share, 0.2);
  EXPECT_NEAR(costs.EstimateDrain(1000, largest) / (1050e-6 + 20e-6 * 1000 * share), 1, 0.1);
}

TEST(CostModel, ARestoredModelEstimatesAndLearnsTheSame) {
  std::mt19937_64 random(9);
  CostModel costs;
  Train(&costs, &random, 700);
  CostModel restored;
  restored.Restore(costs.state());
  ASSERT_FALSE(costs.state().buckets.empty());
  for (size_t i = 0; i < costs.state().buckets.size(); ++i) {
    EXPECT_EQ(restored.state().buckets[i].mean_seconds, costs.state().buckets[i].mean_seconds);
  }
  for (int i = 0; i < 300; ++i) {
    const StepShape step = RandomStep(&random);
    ASSERT_EQ(costs.Estimate(step), restored.Estimate(step));
    ASSERT_EQ(costs.EstimateDrain(5000, step.bucket), restored.EstimateDrain(5000, step.bucket));
    costs.Observe(step, TrueCost(step));
    restored.Observe(step, TrueCost(step));
  }
}

TEST(CostModel, LearnsAfterRestoringInvalidState) {
  for (double nonsense : {kNaN, kInfinity, -kInfinity, -1.0, 1e308, 1e-308}) {
    SCOPED_TRACE(nonsense);
    CostState state;
    for (int i = 0; i < kCostTerms; ++i) {
      state.law[i] = nonsense;
      state.products[i] = nonsense;
      state.totals[i] = nonsense;
      for (double& moment : state.moments[i]) moment = nonsense;
    }
    state.buckets.push_back({.bucket = {.tokens = 64, .sequences = 64},
                             .correction = nonsense,
                             .weight = nonsense,
                             .mean_seconds = nonsense});
    CostModel costs;
    costs.Restore(state);
    std::mt19937_64 random(10);
    for (int i = 0; i < 100; ++i) {
      const StepShape step = RandomStep(&random);
      ASSERT_TRUE(std::isfinite(costs.Estimate(step)));
      ASSERT_GE(costs.Estimate(step), 0);
      costs.Observe(step, TrueCost(step));
    }
    for (const BucketCost& cost : costs.state().buckets) {
      EXPECT_TRUE(std::isfinite(cost.correction) && cost.correction > 0);
      EXPECT_TRUE(std::isfinite(cost.mean_seconds));
    }
  }
}

// The restored shares of a batch are impossible.
TEST(CostModel, TheDrainTimeOfARestoredModelIsFinite) {
  constexpr int kComputed = 2;
  for (double share : {0.0, 1e12, 1e45}) {
    SCOPED_TRACE(share);
    CostState state;
    for (double& seconds : state.law) seconds = 1e-6;
    for (double& total : state.totals) total = share;
    for (double computed : {1e-300, 1e-30, 1.0}) {
      state.totals[kComputed] = computed;
      CostModel costs;
      costs.Restore(state);
      for (int64_t tokens : {int64_t{1}, int64_t{1000}, INT64_MAX}) {
        const double drain = costs.EstimateDrain(tokens, {.tokens = 512, .sequences = 8});
        EXPECT_TRUE(drain > 0 && drain <= 1e9) << drain;
      }
    }
  }
}

// The device becomes slower for good. Buckets that have not run since then must follow.
TEST(CostModel, TheLawForgetsOldSteps) {
  CostModel costs;
  const auto run = [&](int steps, double seconds_per_token) {
    for (int i = 0; i < steps; ++i) {
      const int32_t tokens = 100 << (i % 4);
      costs.Observe({.bucket = {.tokens = tokens, .sequences = 8}, .computed_tokens = tokens},
                    seconds_per_token * tokens);
    }
  };
  run(6000, 1e-6);
  run(3000, 2e-6);
  const double seconds =
      costs.Estimate({.bucket = {.tokens = 300, .sequences = 8}, .computed_tokens = 300});
  EXPECT_NEAR(seconds / 600e-6, 1, 0.15);
}

}  // namespace
}  // namespace sluice
