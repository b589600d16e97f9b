#include "loadtest/size/sizing.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/journal/recorded.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "loadtest/parse_flags.h"
#include "loadtest/simulate/prediction.h"
#include "loadtest/simulate/workload.h"
#include "loadtest/size/sizing_report.h"
#include "tests/support/recorded_run.h"
#include "tests/support/temporary_directory.h"

namespace sluice::loadtest {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

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
  EXPECT_THAT(SizingTable(*sizing, Options()),
              AllOf(HasSubstr("replicas can carry"),
                    HasSubstr(absl::StrCat("To do: run ", sizing->replicas, " replicas, and"))));
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

TEST(SizeReplicas, ReportsAnObjectiveThatTooFewReplicasMiss) {
  SizingOptions options = Options();
  options.max_replicas = 2;
  const auto sizing = SizeReplicas(FourfoldLoad(), options);
  ASSERT_TRUE(sizing.ok());
  EXPECT_EQ(sizing->replicas, 0);
  EXPECT_EQ(sizing->rows.size(), 2u);
  EXPECT_THAT(SizingTable(*sizing, options), HasSubstr("2 replicas cannot end"));
  EXPECT_THAT(SizingTable(*sizing, options), HasSubstr("\nTo do: raise --max-replicas or"));
  EXPECT_THAT(SizingTable(*sizing, options), Not(HasSubstr("To do: run")));
}

TEST(SizeReplicas, StopsIfTheLongestSequencesMissTheObjectiveOnAnIdleReplica) {
  std::vector<Arrival> arrivals;
  for (int i = 0; i < 2000; ++i) {
    arrivals.push_back(
        {.at = MonoTime(std::chrono::milliseconds(10 * i)), .tokens = i % 10 == 0 ? 16000 : 100});
  }
  SizingOptions options = Options();
  options.objective_seconds = 0.5e-3;  // 16384 tokens take 715 us, and 10 % more
  const auto sizing = SizeReplicas(arrivals, options);
  ASSERT_TRUE(sizing.ok()) << sizing.status();
  EXPECT_EQ(sizing->replicas, 0);
  EXPECT_EQ(sizing->rows.size(), 1u);
  EXPECT_NEAR(*sizing->share_alone, 0.9, 1e-9);
  EXPECT_THAT(SizingTable(*sizing, options),
              AllOf(HasSubstr("More replicas cannot help"), HasSubstr("only 0.9 of the sequences"),
                    HasSubstr("has 16000 tokens"), HasSubstr("\nTo do: raise --objective-ms,"),
                    Not(HasSubstr("To do: run"))));
  options.share = 0.9;
  EXPECT_EQ(SizeReplicas(arrivals, options)->replicas, 1);
}

TEST(SizeReplicas, PromisesNoMoreThanTheReplicasCanComputeForLong) {
  const std::vector<Arrival> arrivals = FourfoldLoad();
  SizingOptions options = Options();
  options.margin = 0;
  options.objective_seconds = 1000;  // far longer than the recording
  const auto sizing = SizeReplicas(arrivals, options);
  ASSERT_TRUE(sizing.ok()) << sizing.status();
  ASSERT_EQ(sizing->replicas, 1);
  EXPECT_FALSE(sizing->lasts);
  EXPECT_EQ(sizing->bears, 1) << "one replica carries less than the recorded load";
  options.growth = 1e-3;
  const double bears = SizeReplicas(arrivals, options)->bears;
  EXPECT_LT(bears, 0.26) << "the load is four times the capacity";
  EXPECT_GT(bears, 0.15);
}

TEST(ParseFlags, SuggestsTheNearestFlagOfAGroup) {
  CLI::App app;
  double objective = 0;
  app.add_option_group("group")->add_option("--objective-ms", objective);
  const char* const arguments[] = {"program", "--objective", "50"};
  testing::internal::CaptureStderr();
  EXPECT_EQ(ParseFlags(app, 3, arguments), kExitWrongArguments);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("unknown argument --objective; did you mean --objective-ms?"));
}

TEST(SizeReplicas, StatesWhyAResultMayNotHold) {
  std::vector<Arrival> arrivals;
  for (int i = 0; i < 20; ++i) {
    arrivals.push_back({.at = MonoTime(std::chrono::microseconds(10 * i)), .tokens = 8});
  }
  SizingOptions options = Options();
  const auto sizing = SizeReplicas(arrivals, options);
  ASSERT_TRUE(sizing.ok()) << sizing.status();
  const std::string text = SizingTable(*sizing, options);
  EXPECT_THAT(text, HasSubstr("1 replica can carry 1 times"));
  EXPECT_THAT(text, HasSubstr("Only 20 sequences arrived. A share of 0.99 needs at least 1000."));
  EXPECT_THAT(text, HasSubstr("All sequences arrive within one objective"));
  EXPECT_THAT(text, HasSubstr("To do: first remove the doubts above. If the figures stay, run 1 "));
  EXPECT_THAT(text, Not(HasSubstr("refused")));

  options.costs_assumed = true;
  const std::string assumed = SizingTable(*sizing, options);
  EXPECT_THAT(assumed, HasSubstr("No number of replicas is stated, because the costs are assumed: "
                                 "a step takes 60 us + 0.04 us per token."));
  EXPECT_THAT(assumed, Not(HasSubstr("replica can carry")));
  EXPECT_THAT(assumed, Not(HasSubstr("run 1 replica")));

  SizingOptions measured = Options();
  measured.from_journal = true;
  const std::vector<Arrival> many = FourfoldLoad();
  const std::string recorded = SizingTable(*SizeReplicas(many, measured), measured);
  EXPECT_THAT(recorded, HasSubstr("A journal has no refused requests."));
  EXPECT_THAT(recorded, Not(HasSubstr("assumed")));
  EXPECT_THAT(recorded, Not(HasSubstr("Only ")));
  EXPECT_THAT(recorded, Not(HasSubstr("All sequences arrive")));
}

// A device that computes only the tokens of a batch, at costs that no law has.
double SteepCost(const StepShape& step) { return step.computed_tokens > 128 ? 9e-3 : 1e-3; }

// Returns the journal of random arrivals on such a device.
RecordedRun RecordSteepRun(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::exponential_distribution<double> gap(200);
  std::vector<Arrival> arrivals;
  double at = 5;
  for (int i = 0; i < 1000; ++i) {
    at += gap(random);
    arrivals.push_back({.at = MonoTime(nanoseconds(static_cast<int64_t>(at * 1e9))),
                        .tokens = static_cast<int32_t>(1 + random() % 200)});
  }
  BatchOptions batch;
  batch.max_batch_tokens = 512;
  batch.max_batch_sequences = 64;
  const TemporaryDirectory directory;
  const std::string path = directory.File("journal");
  RecordRun(arrivals, batch, {.cost = SteepCost, .host = {}}, path, ComputedRows::OfBatch());
  return *ReadJournalRun(path);
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// Both run the same arrivals on one replica. They start with different estimates, so single
// decisions may differ.
TEST(SizeReplicas, AgreesWithThePredictionOfAJournal) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::vector<double> p50, p99, busy;
  for (int i = 0; i < 15; ++i) {
    const RecordedRun run = RecordSteepRun(seed + i);
    SizingOptions options;
    SetRun(run, /*with_costs=*/true, &options);
    options.margin = 0;
    options.max_replicas = 1;
    const auto sizing = SizeReplicas(run.arrivals, options);
    const auto prediction = Predict(run, nullptr);
    ASSERT_TRUE(sizing.ok() && prediction.ok()) << sizing.status() << prediction.status();
    const SizingRow& row = sizing->rows.front();
    p50.push_back(row.p50_seconds / prediction->simulated.p50_seconds);
    p99.push_back(row.p99_seconds / prediction->simulated.p99_seconds);
    busy.push_back(row.utilisation / prediction->simulated.busy_share);
  }
  EXPECT_NEAR(Median(p50), 1, 0.03);
  EXPECT_NEAR(Median(p99), 1, 0.03);
  EXPECT_NEAR(Median(busy), 1, 0.03);
}

// Two daemons, or two starts of one, that write the same file.
TEST(SizeReplicas, StatesThatOnlyTheLastRunOfAJournalIsUsed) {
  const TemporaryDirectory directory;
  const std::string path = directory.File("journal");
  BatchOptions batch;
  batch.max_batch_tokens = 4096;
  batch.max_batch_sequences = 64;
  for (int i = 0; i < 2; ++i) {
    RecordRun(FourfoldLoad(), batch, {.cost = SteepCost, .host = {}}, path,
              ComputedRows::OfBatch());
  }
  const RecordedRun run = *ReadJournalRun(path);
  SizingOptions options;
  SetRun(run, /*with_costs=*/true, &options);
  options.objective_seconds = 10;
  EXPECT_THAT(SizingTable(*SizeReplicas(run.arrivals, options), options),
              HasSubstr("The journal has 2 runs, and these figures are of the last one."));
  options.journal_runs = 1;
  EXPECT_THAT(SizingTable(*SizeReplicas(run.arrivals, options), options),
              Not(HasSubstr("The journal has")));
}

TEST(SizeReplicas, AdvisesNoLadderIfBucketsChangeNothing) {
  const RecordedRun run = RecordSteepRun(1);
  SizingOptions options;
  SetRun(run, /*with_costs=*/true, &options);
  options.objective_seconds = 10;
  const auto sizing = SizeReplicas(run.arrivals, options);
  ASSERT_TRUE(sizing.ok()) << sizing.status();
  EXPECT_EQ(sizing->ladder, *run.ladder);
  EXPECT_THAT(SizingTable(*sizing, options), HasSubstr("No ladder is advised"));
  EXPECT_THAT(SizingYaml(*sizing, options), Not(HasSubstr("ladder")));
  EXPECT_THAT(SizingYaml(*sizing, options), HasSubstr("  batch:"));
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
  const std::string other = ::testing::TempDir() + "/size_sizing_test.csv";
  std::ofstream(other) << "arrival_s,input_tokens\n1,10\n";
  EXPECT_THAT(std::string(ReadJournalRun(other).status().message()),
              HasSubstr("size_sizing_test.csv: line 1: "));
  EXPECT_EQ(ReadJournalRun("/nonexistent").status().code(), absl::StatusCode::kNotFound);
  const std::string path = ::testing::TempDir() + "/size_sizing_test.journal";
  std::ofstream(path).flush();
  EXPECT_THAT(std::string(ReadJournalRun(path).status().message()), HasSubstr("no arrivals"));
}

}  // namespace
}  // namespace sluice::loadtest
