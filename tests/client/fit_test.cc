#include "client/fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "absl/strings/str_join.h"
#include "client/trials.h"
#include "config/load.h"
#include "engine/review/strategies.h"
#include "tests/support/recorded_run.h"
#include "tests/support/temporary_directory.h"

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
  options.strategy = "adaptive";
  return options;
}

const StrategyTrial& Taken(const FitReport& report) {
  return *std::ranges::find(report.trials.trials, report.taken, &StrategyTrial::name);
}

std::vector<int32_t> TwoLengths(int count) {
  std::vector<int32_t> lengths;
  for (int i = 0; i < count; ++i) lengths.push_back(i % 2 == 0 ? 70 : 290);
  return lengths;
}

TEST(Fit, GivesALadderWithinItsBounds) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    std::vector<int32_t> lengths(2000);
    for (int32_t& length : lengths) length = 1 + static_cast<int32_t>(random() % 300);
    const FitReport report = *Fit(InputOf(lengths, Options()), Options());
    const StrategyTrial& taken = Taken(report);
    EXPECT_LE(taken.buckets.size(), 12u) << "at most twice max_buckets";
    EXPECT_EQ(taken.buckets.back().tokens, 1024);
    EXPECT_GT(taken.bucket_fill, 0);
    EXPECT_LE(taken.bucket_fill, 1);
    // The same lengths give the same answer.
    EXPECT_EQ(FitText(*Fit(InputOf(lengths, Options()), Options()), Options()),
              FitText(report, Options()));
  }
}

TEST(Fit, TakesTheFittedLadderForLengthsBetweenFixedBuckets) {
  FitArguments options = Options();
  options.load = 0.05;  // most batches have one request, so a bucket per length is best
  const FitReport report = *Fit(InputOf(TwoLengths(4000), options), options);
  EXPECT_THAT(report.taken, testing::HasSubstr("adaptive"));
  EXPECT_GT(Taken(report).bucket_fill, 0.9);
}

// For any requested strategy, no other tried strategy is better by more than chance.
TEST(Fit, NeverPrintsALadderWithAWorseResult) {
  for (const char* strategy : {"adaptive", "geometric", "memory_optimal", "fixed", "all"}) {
    SCOPED_TRACE(strategy);
    FitArguments options = Options();
    options.strategy = strategy;
    options.load = 0.1;
    const FitReport report = *Fit(InputOf(TwoLengths(2000), options), options);
    for (const StrategyTrial& trial : report.trials.trials) {
      EXPECT_LE(trial.gain, Taken(report).gain + report.trials.margin) << trial.name;
    }
  }
}

// The cost of a step on a CPU depends only on its computed tokens, not on its bucket.
TEST(Fit, ReportsWhenBucketingGainsNothing) {
  FitArguments options = Options();
  options.strategy = "all";
  options.token_us = 0;
  options.computed_token_us = 1;
  const FitReport report = *Fit(InputOf(TwoLengths(2000), options), options);
  EXPECT_EQ(report.taken, "one bucket");
  const std::string text = FitText(report, options);
  EXPECT_THAT(text, testing::HasSubstr("Bucketing gains nothing here"));
  EXPECT_THAT(text, testing::HasSubstr("# To do: nothing. This ladder gains 0.0% over a single "));
  EXPECT_THAT(text, testing::HasSubstr("fixed_tokens: [1024]"));
}

TEST(Fit, ReadsATraceAtItsTimes) {
  const std::string path = testing::TempDir() + "/fit_test_trace.jsonl";
  std::ofstream file(path);
  for (int i = 0; i < 400; ++i) {
    file << "{\"timestamp\": " << 10 * i << ", \"input_length\": " << (i % 2 == 0 ? 70 : 2900)
         << ", \"output_length\": 5, \"hash_ids\": [1]}\n";
  }
  file.close();
  FitArguments options = Options();
  options.trace = path;
  options.load = 0;
  absl::StatusOr<FitInput> input = ReadInput(options);
  ASSERT_TRUE(input.ok()) << input.status();
  ASSERT_EQ(input->arrivals.size(), 400u);
  EXPECT_EQ(input->arrivals[1].tokens, 1024) << "reduced to the batch";
  EXPECT_EQ(input->arrivals[1].at - input->arrivals[0].at, std::chrono::milliseconds(10));
  EXPECT_TRUE(Fit(*input, options).ok());
  options.load = 0.5;  // (70 + 1024) / 2 tokens every 1.1 ms: half of 1024 every 1.084 ms
  input = ReadInput(options);
  const std::chrono::duration<double> span = input->arrivals[399].at - input->arrivals[0].at;
  EXPECT_NEAR(span.count(), 400 * 547 / (0.5 * 1024 / 1084e-6), 1e-6);
  options.trace = "/nonexistent";
  EXPECT_FALSE(ReadInput(options).ok());
}

// Writes to `path` the journal of a daemon that ran up to 7 sequences at a time.
void RecordRunOfSeven(const std::string& path) {
  std::vector<Arrival> arrivals;
  for (int i = 0; i < 400; ++i) {
    arrivals.push_back({.at = MonoTime(std::chrono::milliseconds(i)), .tokens = 1 + i % 50});
  }
  BatchOptions batch;
  batch.max_batch_tokens = 64;
  batch.max_batch_sequences = 7;
  RecordRun(arrivals, batch, {.cost = [](const StepShape&) { return 1e-3; }, .host = {}}, path);
}

TEST(Fit, StepsHaveTheRecordedNumberOfSequencesUnlessANumberIsGiven) {
  const TemporaryDirectory directory;
  FitArguments options = Options();
  options.journal = directory.File("journal");
  RecordRunOfSeven(options.journal);
  const auto most_of_a_step = [&] {
    const absl::StatusOr<FitReport> report = Fit(*ReadInput(options), options);
    return Taken(*report).buckets.back().sequences;
  };
  EXPECT_EQ(most_of_a_step(), 64) << "as given";
  options.batch.max_batch_sequences = 0;
  EXPECT_EQ(most_of_a_step(), 7) << "as recorded";
}

// A device that computes only the tokens of a batch, at costs that no law has.
double SteepCost(const StepShape& step) { return step.computed_tokens > 135 ? 42e-3 : 2e-3; }

TEST(Fit, KeepsTheMeasuredCostsAndAdvisesNoLadderIfBucketsChangeNothing) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  std::vector<Arrival> arrivals;
  for (int i = 0; i < 1000; ++i) {
    arrivals.push_back({.at = MonoTime(std::chrono::milliseconds(200 * i)),
                        .tokens = static_cast<int32_t>(1 + random() % 200)});
  }
  BatchOptions batch;
  batch.max_batch_tokens = 512;
  batch.max_batch_sequences = 64;
  const TemporaryDirectory directory;
  FitArguments options;
  options.journal = directory.File("journal");
  RecordRun(arrivals, batch, {.cost = SteepCost, .host = {}}, options.journal,
            ComputedRows::OfBatch());
  options.batch.max_batch_tokens = 512;
  for (const char* strategy : {"adaptive", "geometric", "all"}) {
    options.strategy = strategy;
    const FitReport report = *Fit(*ReadInput(options), options);
    EXPECT_TRUE(report.trials.ladder_is_free);
    double device_seconds = 0;  // of the second half, which runs one sequence at a time
    for (int i = 500; i < 1000; ++i) {
      device_seconds += SteepCost({.computed_tokens = arrivals[i].tokens});
    }
    EXPECT_NEAR(report.trials.trials.front().device_seconds / device_seconds, 1, 0.03);
    const std::string text = FitText(report, options);
    EXPECT_THAT(text, testing::HasSubstr("Leave the ladder as it is"));
    EXPECT_THAT(text, testing::HasSubstr("# To do: nothing."));
    EXPECT_THAT(text, testing::Not(testing::HasSubstr("ladder:")));
    EXPECT_THAT(text, testing::HasSubstr("max_batch_tokens: 512"));
    EXPECT_FALSE(FitJson(report, options)["engine"].contains("ladder"));
  }
}

TEST(Fit, NeedsSomeArrivals) {
  FitInput input = InputOf(TwoLengths(10), Options());
  EXPECT_TRUE(Fit(input, Options()).ok()) << "a few lengths are repeated";
  input.arrivals.resize(99);
  EXPECT_THAT(Fit(input, Options()).status().message(), testing::HasSubstr("only 99"));
}

TEST(Fit, HardwareAwareLaddersUseRowsThatTheDeviceComputesExactly) {
  FitArguments options = Options();
  options.rows = DeviceRows::kLibrary;
  const FitReport report = *Fit(InputOf(TwoLengths(2000), options), options);
  const auto trial =
      std::ranges::find(report.trials.trials, "hardware_aware", &StrategyTrial::name);
  ASSERT_NE(trial, report.trials.trials.end());
  ASSERT_GT(trial->buckets.size(), 1u);
  for (const Bucket& bucket : trial->buckets) {
    EXPECT_TRUE(ComputedRows::OfLibrary().Exact(bucket.tokens)) << bucket.tokens;
  }
}

TEST(FitText, IsConfigurationThatProducesTheLadder) {
  FitArguments options = Options();
  options.strategy = "all";
  const FitReport report = *Fit(InputOf(TwoLengths(2000), options), options);
  const std::string text = FitText(report, options);
  for (const char* column : {"FILL", "P50 MS", "P99 MS", "MIB", "CAPTURES", "GAIN"}) {
    EXPECT_THAT(text, testing::HasSubstr(column));
  }
  Config config;
  Origins origins;
  std::vector<std::string> old;
  ASSERT_EQ(LoadYaml(text, "fit.yaml", &config, &origins, &old), absl::OkStatus()) << text;
  EXPECT_THAT(old, ::testing::IsEmpty());
  EXPECT_EQ(config.engine.ladder.strategy, StrategyKind::kFixed);
  EXPECT_THAT(text, ::testing::Not(testing::HasSubstr("min_tokens:")))
      << "it has no effect on a fixed ladder";
  std::vector<int32_t> tokens;
  for (const Bucket& bucket : Taken(report).buckets) tokens.push_back(bucket.tokens);
  const nlohmann::json json = FitJson(report, options);
  EXPECT_EQ(json["engine"]["ladder"]["fixed_tokens"], tokens);
  EXPECT_EQ(json["taken"], report.taken);
  EXPECT_EQ(json["trials"].size(), report.trials.trials.size());
  // The options are configuration as well, because YAML includes JSON.
  Config from_json;
  const nlohmann::json file = {{"engine", json["engine"]}};
  ASSERT_EQ(LoadYaml(file.dump(), "fit.json", &from_json, &origins, &old), absl::OkStatus());
  EXPECT_EQ(from_json.engine.ladder.fixed_tokens, tokens);
  EXPECT_EQ(from_json.engine.batch.max_batch_sequences, 64);
  EXPECT_EQ(config.engine.ladder.fixed_tokens, tokens);
  EXPECT_EQ(config.engine.batch.max_batch_tokens, 1024);
  EXPECT_EQ(config.engine.batch.max_batch_sequences, 64);
}

// The advice of a fit that gains more than chance is a command that gives the same ladder.
TEST(FitText, StatesWhatToDoWithTheLadder) {
  FitArguments options = Options();
  options.load = 0.05;
  const FitReport report = *Fit(InputOf(TwoLengths(4000), options), options);
  ASSERT_GT(Taken(report).gain, report.trials.margin);
  const nlohmann::json json = FitJson(report, options);
  std::vector<int32_t> tokens;
  for (const Bucket& bucket : Taken(report).buckets) tokens.push_back(bucket.tokens);
  const std::string todo = json["todo"];
  EXPECT_THAT(todo, testing::HasSubstr("the file of sluiced --config"));
  EXPECT_THAT(todo, testing::HasSubstr("sluice ladder set MODEL --strategy fixed --fixed-tokens " +
                                       absl::StrJoin(tokens, ",") + " --keep"));
  EXPECT_THAT(FitText(report, options), testing::HasSubstr("# To do: add the lines below"));
}

StrategyTrial TrialOfGain(const std::string& name, double gain, int64_t plan_bytes) {
  StrategyTrial trial;
  trial.name = name;
  trial.gain = gain;
  trial.plan_bytes = plan_bytes;
  trial.device_seconds = trial.mean_latency_seconds = 1;
  return trial;
}

// A ladder that is better than one bucket, but not than the default, is not advised.
TEST(FitText, AdvisesNoLadderThatIsAsGoodAsTheDefault) {
  FitArguments options = Options();
  options.load = 0.05;
  FitReport report = *Fit(InputOf(TwoLengths(4000), options), options);
  const StrategyTrial& usual = *std::ranges::find_if(
      report.trials.trials,
      [](const StrategyTrial& trial) { return trial.choice.at("strategy") == "geometric"; });
  for (StrategyTrial& trial : report.trials.trials) {
    if (trial.name == report.taken)
      trial.gain = 1 - (1 - usual.gain) * (1 - 0.9 * report.trials.margin);
  }
  ASSERT_GT(Taken(report).gain, report.trials.margin);
  EXPECT_THAT(FitText(report, options), testing::HasSubstr("# To do: nothing if sluiced has its"));
}

TEST(VerdictText, ExplainsWhyALadderWithMoreGainIsNotTaken) {
  StrategyTrials trials;
  trials.arrivals = 1000;
  trials.margin = 0.02;
  trials.trials = {TrialOfGain("present", 0, 3), TrialOfGain("small", 0.141, 1),
                   TrialOfGain("large", 0.15, 9)};
  trials.best = BestTrial(trials);
  EXPECT_EQ(trials.best, "small");
  EXPECT_THAT(VerdictText(trials),
              testing::HasSubstr("Take \"small\": it gains 14.1% over \"present\""));
  EXPECT_THAT(VerdictText(trials),
              testing::HasSubstr("\"large\" gains 15.0%, but the difference may be chance and its "
                                 "plans take more memory."));
  trials.trials.pop_back();
  EXPECT_THAT(VerdictText(trials), ::testing::Not(testing::HasSubstr("chance and its plans")));
}

TEST(VerdictText, DoesNotDenyAGainThatFewArrivalsCannotShow) {
  StrategyTrials trials;
  trials.arrivals = 500;
  trials.margin = 0.417;
  trials.trials = {TrialOfGain("one bucket", 0, 1), TrialOfGain("adaptive", 0.221, 1)};
  trials.best = BestTrial(trials);
  EXPECT_THAT(VerdictText(trials),
              testing::HasSubstr("Keep \"one bucket\": no other ladder gains more than 41.7%"));
  EXPECT_THAT(VerdictText(trials),
              testing::HasSubstr("The largest gain over a single bucket is 22.1%, which may be "
                                 "chance; try again with more arrivals."));
  trials.trials.back().gain = 0.005;
  EXPECT_THAT(VerdictText(trials), testing::HasSubstr("Bucketing gains nothing here"));
}

TEST(VerdictText, KeepsTheLadderInUseIfAGainMayBeChance) {
  StrategyTrials trials;
  trials.arrivals = 1000;
  trials.margin = 0.02;
  trials.trials = {TrialOfGain("present", 0, 1), TrialOfGain("other", 0.009, 1)};
  trials.best = BestTrial(trials);
  EXPECT_EQ(trials.best, "present");
  EXPECT_THAT(VerdictText(trials),
              testing::HasSubstr("Keep \"present\": no other ladder gains more than 2.0% on 1000 "
                                 "arrivals, and such a gain may be chance."));
}

TEST(TrialsTable, HasNoColumnOfMemoryIfPlansTakeNone) {
  StrategyTrials trials;
  trials.trials = {TrialOfGain("present", 0, 0), TrialOfGain("other", 0.141, 0)};
  EXPECT_THAT(TrialsTable(trials), ::testing::Not(testing::HasSubstr("MIB")));
  EXPECT_THAT(TrialsTable(trials), testing::HasSubstr("CAPTURES"));
  trials.trials.front().plan_bytes = 1 << 20;
  EXPECT_THAT(TrialsTable(trials), testing::HasSubstr("P99 MS   MIB  CAPTURES"));
}

}  // namespace
}  // namespace sluice::client
