#include "loadtest/simulate/prediction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tests/support/recorded_run.h"
#include "tests/support/temporary_directory.h"

namespace sluice::loadtest {
namespace {

constexpr int kRuns = 31;
constexpr double kBaseSeconds = 2e-3, kTokenSeconds = 20e-6;
constexpr HostTimes kHost = {.wake_seconds = 300e-6,
                             .turnaround_seconds = 1500e-6,
                             .turnaround_seconds_per_sequence = 100e-6,
                             .arrival_seconds = 200e-6};

constexpr double kAdapterSeconds = 1e-3;

double Cost(const StepShape& step) {
  return kBaseSeconds + kTokenSeconds * step.bucket.tokens +
         kAdapterSeconds * step.distinct_adapters;
}

// Runs random arrivals in virtual time and writes their journal to `path`.
void RecordRandomRun(uint64_t seed, const std::function<double(const StepShape&)>& cost,
                     const std::string& path) {
  std::mt19937_64 random(seed);
  std::exponential_distribution<double> gap(60);
  std::vector<Arrival> arrivals;
  double at = 5;
  for (int i = 0; i < 500; ++i) {
    at += gap(random);
    arrivals.push_back({.at = MonoTime(nanoseconds(static_cast<int64_t>(at * 1e9))),
                        .tokens = static_cast<int32_t>(1 + random() % 100),
                        .steps = static_cast<int32_t>(1 + random() % 3),
                        .adapter = random() % 4});
  }
  BatchOptions batch;
  batch.max_batch_tokens = 256;
  batch.max_batch_sequences = 64;
  RecordRun(arrivals, batch, {.cost = cost, .host = kHost}, path);
}

class PredictionTest : public ::testing::Test {
 protected:
  absl::StatusOr<RecordedRun> Record(uint64_t seed,
                                     const std::function<double(const StepShape&)>& cost = Cost) {
    const std::string path = directory_.File("journal_" + std::to_string(seed));
    RecordRandomRun(seed, cost, path);
    return ReadJournalRun(path);
  }

  TemporaryDirectory directory_;
};

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// The runs started without known costs, but the predictions use the costs. Single decisions may
// therefore differ, so the test compares medians over many runs.
TEST_F(PredictionTest, PredictsAVirtualRun) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  const StepCosts costs{.base_seconds = kBaseSeconds,
                        .seconds_per_bucket_token = kTokenSeconds,
                        .seconds_per_adapter = kAdapterSeconds};
  std::vector<double> arrival, turnaround, per_sequence, throughput, p50, busy;
  for (int i = 0; i < kRuns; ++i) {
    const auto run = Record(seed + i);
    ASSERT_TRUE(run.ok()) << run.status();
    const auto prediction = Predict(*run, &costs);
    ASSERT_TRUE(prediction.ok()) << prediction.status();
    const auto& [measured, simulated, host, slow] = *prediction;
    EXPECT_EQ(measured.sequences, 500);
    EXPECT_EQ(simulated.sequences, 500);
    arrival.push_back(host.arrival_seconds);
    turnaround.push_back(host.turnaround_seconds);
    per_sequence.push_back(host.turnaround_seconds_per_sequence);
    throughput.push_back(simulated.sequences_per_second / measured.sequences_per_second);
    p50.push_back(simulated.p50_seconds / measured.p50_seconds);
    busy.push_back(simulated.busy_share - measured.busy_share);
  }
  EXPECT_NEAR(Median(arrival), kHost.arrival_seconds, 50e-6);
  EXPECT_NEAR(Median(turnaround), kHost.turnaround_seconds, 50e-6);
  EXPECT_NEAR(Median(per_sequence), kHost.turnaround_seconds_per_sequence, 20e-6);
  EXPECT_NEAR(Median(throughput), 1, 0.01);
  EXPECT_NEAR(Median(p50), 1, 0.05);
  EXPECT_NEAR(Median(busy), 0, 0.05);
}

TEST_F(PredictionTest, UsesTheGivenCosts) {
  const auto run = Record(1);
  ASSERT_TRUE(run.ok()) << run.status();
  const StepCosts slower{.base_seconds = 3 * kBaseSeconds,
                         .seconds_per_bucket_token = 3 * kTokenSeconds};
  const auto own = Predict(*run, nullptr), other = Predict(*run, &slower);
  ASSERT_TRUE(own.ok() && other.ok());
  EXPECT_GT(other->simulated.p50_seconds, 1.5 * own->simulated.p50_seconds);
  EXPECT_EQ(other->measured.p50_seconds, own->measured.p50_seconds);
}

// The live cost model forgets and adapts to changes. The costs of a recorded run do not.
TEST_F(PredictionTest, RecordedCostsAreAveragesOfTheWholeRun) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  double drift = 1;  // the machine becomes slower with each step
  const auto run =
      Record(seed, [&](const StepShape& step) { return Cost(step) * (drift += 1e-3); });
  ASSERT_TRUE(run.ok()) << run.status();
  const auto prediction = Predict(*run, nullptr);
  ASSERT_TRUE(prediction.ok()) << prediction.status();
  const RunFigures &measured = prediction->measured, &simulated = prediction->simulated;
  EXPECT_NEAR(simulated.busy_share / static_cast<double>(simulated.batches),
              measured.busy_share / static_cast<double>(measured.batches),
              0.03 * measured.busy_share / static_cast<double>(measured.batches));
}

// Steps of many buckets are slow for less than half a second, and all calls in the highest
// percentile wait for them. These are five calls per run, so the test uses medians of many runs.
TEST_F(PredictionTest, ReproducesAStallAtItsTime) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::vector<double> ratios, paces;
  for (int i = 0; i < kRuns; ++i) {
    double spent = 0;
    const auto run = Record(seed + i, [&](const StepShape& step) {
      const double seconds = Cost(step) * (spent > 1 && spent < 1.4 ? 4 : 1);
      spent += seconds;
      return seconds;
    });
    ASSERT_TRUE(run.ok()) << run.status();
    const auto prediction = Predict(*run, nullptr);
    ASSERT_TRUE(prediction.ok()) << prediction.status();
    ratios.push_back(prediction->simulated.p99_seconds / prediction->measured.p99_seconds);
    paces.push_back(prediction->slow.pace);
  }
  EXPECT_NEAR(Median(ratios), 1, 0.1);
  EXPECT_GT(Median(paces), 1.2);
}

TEST_F(PredictionTest, CountsSlowSequencesThatWaitTogetherOnce) {
  auto run = Record(3);
  ASSERT_TRUE(run.ok()) << run.status();
  const auto end = [&](size_t i, int ms) {
    run->ends[i] = run->arrivals[i].at + std::chrono::milliseconds(ms);
  };
  for (size_t i = 0; i < run->ends.size(); ++i) end(i, 1);
  end(400, 400);  // the 99th percentile of 500
  for (const size_t i : {10, 11, 300, 301}) end(i, 500);
  const auto prediction = Predict(*run, nullptr);
  ASSERT_TRUE(prediction.ok()) << prediction.status();
  EXPECT_EQ(prediction->slow.count, 2);
  EXPECT_NEAR(prediction->slow.pace, 1, 0.3);
}

// A machine that is slow for two of about eight seconds has queues during these two seconds. A
// machine with the same mean speed all the time has none. Percentiles of one run vary, so the
// median of many runs counts.
TEST_F(PredictionTest, ReproducesASlowPeriod) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::vector<double> p99s, means;
  for (int i = 0; i < kRuns; ++i) {
    double spent = 0;
    const auto run = Record(seed + i, [&](const StepShape& step) {
      const double seconds = Cost(step) * (spent > 2 && spent < 4 ? 3 : 1);
      spent += seconds;
      return seconds;
    });
    ASSERT_TRUE(run.ok()) << run.status();
    const auto prediction = Predict(*run, nullptr);
    ASSERT_TRUE(prediction.ok()) << prediction.status();
    const auto& [measured, simulated, host, slow] = *prediction;
    p99s.push_back(simulated.p99_seconds / measured.p99_seconds);
    means.push_back(simulated.mean_seconds / measured.mean_seconds);
  }
  EXPECT_NEAR(Median(p99s), 1, 0.1);
  EXPECT_NEAR(Median(means), 1, 0.1);
}

TEST_F(PredictionTest, NamesTheMissingPart) {
  auto run = Record(2);
  ASSERT_TRUE(run.ok()) << run.status();
  RecordedRun unended = *run;
  std::ranges::fill(unended.ends, MonoTime::max());
  EXPECT_THAT(std::string(Predict(unended, nullptr).status().message()),
              testing::HasSubstr("ended"));
  RecordedRun large = *run;
  large.arrivals[3].tokens = 257;
  EXPECT_THAT(std::string(Predict(large, nullptr).status().message()),
              testing::HasSubstr("257 tokens; the ladder holds 256"));
  run->ladder.reset();
  EXPECT_THAT(std::string(Predict(*run, nullptr).status().message()),
              testing::HasSubstr("no ladder"));
}

}  // namespace
}  // namespace sluice::loadtest
