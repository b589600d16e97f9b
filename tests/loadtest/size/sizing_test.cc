#include "loadtest/size/sizing.h"

#include <chrono>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "engine/journal/recorded.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "loadtest/simulate/workload.h"
#include "loadtest/size/sizing_report.h"

namespace sluice::loadtest {
namespace {

using ::testing::HasSubstr;

SizingOptions Options() {
  SizingOptions options;
  options.objective_seconds = 5e-3;
  options.ladder.strategy = StrategyKind::kGeometric;
  options.batch.max_batch_tokens = 16384;
  return options;
}

// Returns a load of four times the capacity of one replica with full batches.
std::vector<Arrival> FourfoldLoad() {
  std::mt19937_64 random(1);
  const std::vector<int32_t> lengths = MakeLengths(Lengths::kLogNormal, 6000, 4096, &random);
  return MakeArrivals(Process::kPoisson, lengths, 4 * 25e6, &random);
}

TEST(SizeReplicas, FindsTheFewestReplicasForTheLoad) {
  const std::vector<Arrival> arrivals = FourfoldLoad();
  const auto sizing = SizeReplicas(arrivals, Options());
  ASSERT_TRUE(sizing.ok()) << sizing.status();
  EXPECT_GT(sizing->replicas, 4);
  EXPECT_LE(sizing->replicas, 7);
  ASSERT_EQ(sizing->rows.size(), static_cast<size_t>(sizing->replicas));
  for (const SizingRow& row : sizing->rows) {
    EXPECT_EQ(row.meets, row.replicas == sizing->replicas);
    EXPECT_GT(row.utilisation, 0);
    EXPECT_LE(row.utilisation, 1 + 1e-9);
  }
  EXPECT_LE(sizing->rows.back().p99_seconds, 5e-3);
  EXPECT_THAT(SizingTable(*sizing, Options()), HasSubstr("replicas can carry"));
  EXPECT_THAT(SizingYaml(*sizing, Options()), HasSubstr(", 16384]"));
  EXPECT_EQ(SizingToJson(*sizing, Options())["replicas"], sizing->replicas);

  SizingOptions grown = Options();
  grown.growth = sizing->bears;
  EXPECT_EQ(SizeReplicas(arrivals, grown)->replicas, sizing->replicas);
  grown.growth *= 1.5;
  EXPECT_GT(SizeReplicas(arrivals, grown)->replicas, sizing->replicas);
}

TEST(SizeReplicas, AMarginLeavesRoomForSlowerSteps) {
  const std::vector<Arrival> arrivals = FourfoldLoad();
  SizingOptions options = Options();
  options.margin = 0;
  options.growth = 0.1;  // One replica is enough with each of these margins.
  const auto recorded = SizeReplicas(arrivals, options);
  options.margin = 0.2;
  const auto sizing = SizeReplicas(arrivals, options);
  ASSERT_TRUE(recorded.ok() && sizing.ok());
  ASSERT_EQ(recorded->replicas, 1);
  ASSERT_EQ(sizing->replicas, 1);
  EXPECT_NEAR(sizing->bears, recorded->bears / 1.2, 0.1 * recorded->bears);
  EXPECT_THAT(SizingTable(*sizing, options), HasSubstr("if steps take 20 % longer"));
}

TEST(SizeReplicas, ReportsTheRecordedRateAndItsPeak) {
  std::vector<Arrival> arrivals;
  for (const int milliseconds : {0, 900, 1000, 1400, 1800, 2500, 4000}) {
    arrivals.push_back({.at = MonoTime(std::chrono::milliseconds(milliseconds)), .tokens = 8});
  }
  SizingOptions options = Options();
  options.growth = 3;  // The figures describe the recorded load.
  const auto sizing = SizeReplicas(arrivals, options);
  ASSERT_TRUE(sizing.ok()) << sizing.status();
  EXPECT_EQ(sizing->recorded.seconds, 4);
  EXPECT_EQ(sizing->recorded.sequences_per_second, 7.0 / 4);
  EXPECT_EQ(sizing->recorded.busiest_second, 4) << "900, 1000, 1400 and 1800 ms";
  EXPECT_EQ(sizing->recorded.tokens_per_second, 14);
  EXPECT_THAT(SizingTable(*sizing, options), HasSubstr("1.75 sequences/s (4 in the busiest"));
}

TEST(SizeReplicas, ReportsAnObjectiveThatNoReplicaCanMeet) {
  SizingOptions options = Options();
  options.objective_seconds = 1e-6;
  options.max_replicas = 2;
  const auto sizing = SizeReplicas(FourfoldLoad(), options);
  ASSERT_TRUE(sizing.ok());
  EXPECT_EQ(sizing->replicas, 0);
  EXPECT_EQ(sizing->rows.size(), 2u);
  EXPECT_THAT(SizingTable(*sizing, options), HasSubstr("2 replicas cannot end"));
}

TEST(SizeReplicas, SequencesPastTheirDeadlineAreNotWithinTheObjective) {
  std::vector<Arrival> arrivals = FourfoldLoad();
  for (Arrival& arrival : arrivals) arrival.deadline = arrival.at + std::chrono::microseconds(1);
  SizingOptions options = Options();
  options.max_replicas = 1;
  EXPECT_EQ(SizeReplicas(arrivals, options)->rows[0].share_within, 0);
}

TEST(SizeReplicas, NamesTheProblem) {
  const Arrival large[] = {{.tokens = 16380, .steps = 6}};
  SizingOptions options = Options();
  EXPECT_TRUE(SizeReplicas(large, options).ok());
  options.recompute = true;
  EXPECT_THAT(std::string(SizeReplicas(large, options).status().message()), HasSubstr("16385"));
  EXPECT_THAT(std::string(SizeReplicas({}, options).status().message()), HasSubstr("arrives"));
  options = Options();
  options.growth = 0;
  EXPECT_THAT(std::string(SizeReplicas(large, options).status().message()), HasSubstr("growth"));
}

TEST(ReadTraceArrivals, TakesOutputsAsSteps) {
  const std::string path = ::testing::TempDir() + "/size_sizing_test.csv";
  std::ofstream(path) << "arrival_s,input_tokens,output_tokens\n1,10,5\n2,90,50\n";
  const auto prompts = ReadTraceArrivals(path, 100, /*generate=*/false);
  ASSERT_TRUE(prompts.ok()) << prompts.status();
  EXPECT_EQ((*prompts)[1].at, MonoTime(std::chrono::seconds(1)));
  EXPECT_EQ((*prompts)[1].steps, 1);
  const auto generated = ReadTraceArrivals(path, 100, /*generate=*/true);
  EXPECT_EQ((*generated)[0].steps, 5);
  EXPECT_EQ((*generated)[1].steps, 11) << "cut to the cap";
}

TEST(ReadJournalRun, NamesTheMissingPart) {
  EXPECT_EQ(ReadJournalRun("/nonexistent").status().code(), absl::StatusCode::kNotFound);
  const std::string path = ::testing::TempDir() + "/size_sizing_test.journal";
  std::ofstream(path).flush();
  EXPECT_THAT(std::string(ReadJournalRun(path).status().message()), HasSubstr("no arrivals"));
}

}  // namespace
}  // namespace sluice::loadtest
