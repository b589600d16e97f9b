#include "client/fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "config/load.h"

namespace sluice::client {
namespace {

FitArguments Options() {
  FitArguments options;
  options.batch.max_batch_tokens = 1024;
  options.batch.max_batch_sequences = 64;
  options.ladder.max_buckets = 6;
  options.ladder.min_tokens = 16;
  options.step_us = 60;
  options.token_us = 1;
  options.load = 0.5;
  return options;
}

TEST(Fit, GivesALadderWithinItsBounds) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    std::vector<int32_t> lengths(2000);
    for (int32_t& length : lengths) length = 1 + static_cast<int32_t>(random() % 300);
    const FitReport report = Fit(lengths, Options());
    ASSERT_FALSE(report.fitted.empty());
    EXPECT_LE(report.fitted.size(), 6u);
    EXPECT_TRUE(std::is_sorted(report.fitted.begin(), report.fitted.end()));
    EXPECT_EQ(report.fitted.back(), 1024);
    EXPECT_LE(report.geometric.size(), report.fitted.size());
    for (double efficiency : {report.fitted_efficiency, report.geometric_efficiency}) {
      EXPECT_GT(efficiency, 0);
      EXPECT_LE(efficiency, 1);
    }
    // The same lengths give the same answer.
    EXPECT_EQ(Fit(lengths, Options()).fitted_efficiency, report.fitted_efficiency);
  }
}

TEST(Fit, BeatsGeometricOnLengthsBetweenItsBuckets) {
  FitArguments options = Options();
  options.load = 0.05;  // requests are mostly alone, so that a bucket per length is best
  std::vector<int32_t> lengths;
  for (int i = 0; i < 4000; ++i) lengths.push_back(i % 2 == 0 ? 70 : 290);
  const FitReport report = Fit(lengths, options);
  EXPECT_GT(report.fitted_efficiency, report.geometric_efficiency + 0.05);
}

TEST(FitText, IsConfigurationThatGivesTheLadder) {
  FitReport report;
  report.lengths = 3;
  report.fitted = {24, 100, 1024};
  report.geometric = {16, 128, 1024};
  report.fitted_efficiency = 0.95;
  report.geometric_efficiency = 0.8;
  const std::string text = FitText(report, Options());
  EXPECT_THAT(text, testing::HasSubstr("95.0%"));
  Config config;
  Origins origins;
  ASSERT_EQ(LoadYaml(text, "fit.yaml", &config, &origins), absl::OkStatus());
  EXPECT_EQ(config.engine.ladder.strategy, StrategyKind::kFixed);
  EXPECT_EQ(config.engine.ladder.fixed_tokens, report.fitted);
  EXPECT_EQ(config.engine.batch.max_batch_tokens, 1024);
  EXPECT_EQ(config.engine.batch.max_batch_sequences, 64);
}

}  // namespace
}  // namespace sluice::client
