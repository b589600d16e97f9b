#include "loadtest/scale/fleet.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "loadtest/scale/day.h"
#include "loadtest/scale/replica.h"
#include "loadtest/scale/scale_report.h"

namespace sluice::loadtest {
namespace {

using ::testing::HasSubstr;

FleetOptions FleetOf(int replicas) {
  FleetOptions options{.replicas = replicas};
  options.batch.max_batch_tokens = 8192;
  options.costs = {
      .base_seconds = 5e-3, .seconds_per_bucket_token = 0, .seconds_per_computed_token = 100e-6};
  return options;
}

AutoscalerRule ByWork() {
  return {.min_replicas = 1,
          .max_replicas = 8,
          .targets = {{.signal = Signal::kBusy, .per_replica = 0.7, .window_seconds = 60}},
          .up = {.policies = {{.percent = true, .value = 100, .period_seconds = 30}}},
          .down = {.stabilization_seconds = 60, .policies = {{.value = 1, .period_seconds = 30}}}};
}

// Returns a short day with a peak that needs three replicas of 10,000 tokens/s, and a surge that
// needs half as many again.
std::vector<Arrival> ShortDay(uint64_t seed) {
  std::mt19937_64 random(seed);
  return MakeDay(
      {.hours = 0.5, .peak_tokens_per_second = 30'000, .surges = 1, .surge_seconds = 300}, &random);
}

TEST(MakeDay, FollowsItsShape) {
  constexpr uint64_t kSeed = 7;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  const DayOptions options{.hours = 24, .peak_tokens_per_second = 5'000, .surges = 0};
  const std::vector<Arrival> arrivals = MakeDay(options, &random);
  ASSERT_TRUE(std::ranges::is_sorted(arrivals, {}, &Arrival::at));
  std::vector<double> tokens(24);
  for (const Arrival& arrival : arrivals) {
    tokens.at(static_cast<size_t>(Seconds(arrival.at - MonoTime()) / 3600)) += arrival.tokens;
  }
  for (size_t hour = 0; hour < 24; ++hour) {
    const double expected = 5'000 * 3600 * DayShape((static_cast<double>(hour) + 0.5) / 24);
    EXPECT_NEAR(tokens[hour], expected, 0.15 * expected) << hour;
  }
}

TEST(Replica, DrainIsTheTimeUntilAllSequencesEnd) {
  std::vector<double> ends;
  const FleetOptions options = FleetOf(1);
  ReplicaModel model{.batch = options.batch, .costs = options.costs};
  model.ladder = std::make_shared<const Ladder>(*BuildLadder(
      {.strategy = StrategyKind::kGeometric}, {.max_tokens = 8192, .max_sequences = 256}));
  model.on_done = [&](MonoTime, MonoTime end) { ends.push_back(Seconds(end - MonoTime())); };
  for (const Bucket& bucket : model.ladder->buckets()) {
    const StepShape full{.bucket = bucket, .computed_tokens = bucket.tokens};
    for (int i = 0; i < 3; ++i) model.warm.Observe(full, options.costs(full));
  }
  Replica replica(&model);
  for (int i = 0; i < 8; ++i) replica.Arrive(1000);
  EXPECT_EQ(replica.outstanding(), 8u);
  const double drain = replica.DrainSeconds();
  replica.RunUntil(MonoTime(std::chrono::milliseconds(50)));
  EXPECT_NEAR(replica.BusySeconds(), 0.05, 1e-9);  // within the first step
  EXPECT_EQ(replica.outstanding(), 8u);
  replica.RunUntil(MonoTime(std::chrono::seconds(10)));
  ASSERT_EQ(ends.size(), 8u);
  EXPECT_NEAR(ends.back(), drain, 0.2 * drain);
  EXPECT_EQ(replica.outstanding(), 0u);
  EXPECT_EQ(replica.DrainSeconds(), 0);
  EXPECT_NEAR(replica.BusySeconds(), ends.back(), 1e-6);
}

TEST(RunFleet, MoreReplicasWaitLessAndCostMore) {
  const std::vector<Arrival> arrivals = ShortDay(3);
  const FleetResult few = *RunFleet(arrivals, FleetOf(3));
  const FleetResult many = *RunFleet(arrivals, FleetOf(8));
  EXPECT_LT(many.p99_seconds, few.p99_seconds);
  EXPECT_GT(many.share_within, few.share_within);
  EXPECT_NEAR(few.replica_hours, 1.5, 0.01);
  EXPECT_NEAR(many.replica_hours, 4, 0.02);
  for (const FleetBin& bin : many.bins) EXPECT_NEAR(bin.replicas, 8, 1e-6);
}

TEST(RunFleet, EverySequenceEndsWhileTheAutoscalerScales) {
  for (const uint64_t seed : {1, 2, 3}) {
    SCOPED_TRACE(seed);
    const std::vector<Arrival> arrivals = ShortDay(seed);
    FleetOptions options = FleetOf(1);
    options.rule = ByWork();
    options.seed = seed;
    const FleetResult result = *RunFleet(arrivals, options);
    const int64_t ended =
        std::accumulate(result.bins.begin(), result.bins.end(), int64_t{0},
                        [](int64_t sum, const FleetBin& bin) { return sum + bin.arrivals; });
    EXPECT_EQ(ended, static_cast<int64_t>(arrivals.size()));
    EXPECT_EQ(result.least, 1);
    EXPECT_GE(result.most, 4);
    EXPECT_LE(result.most, 8);
    double hours = 0;
    for (const FleetBin& bin : result.bins) {
      hours += bin.replicas * options.bin_seconds / 3600;
      EXPECT_LE(bin.busy_share, 1.001);
    }
    EXPECT_NEAR(hours, result.replica_hours, 0.2);
    // Scaling is cheaper than running the largest number of replicas all day.
    EXPECT_LT(result.replica_hours, 0.85 * 0.5 * result.most);
  }
}

TEST(RunFleet, FasterStartLowersLatency) {
  const std::vector<Arrival> arrivals = ShortDay(5);
  FleetOptions options = FleetOf(1);
  options.rule = ByWork();
  options.startup_seconds = 5;
  const FleetResult quick = *RunFleet(arrivals, options);
  options.startup_seconds = 240;
  const FleetResult slow = *RunFleet(arrivals, options);
  EXPECT_LT(quick.p99_seconds, slow.p99_seconds);
}

TEST(RunFleet, NamesTheProblem) {
  EXPECT_EQ(RunFleet({}, FleetOf(1)).status().code(), absl::StatusCode::kInvalidArgument);
  const std::vector<Arrival> large = {{.at = MonoTime(), .tokens = 8193}};
  EXPECT_EQ(RunFleet(large, FleetOf(1)).status().message(),
            "a sequence of 8193 tokens; max_batch_tokens is 8192");
  const std::vector<Arrival> one = {{.at = MonoTime(), .tokens = 1}};
  EXPECT_EQ(RunFleet(one, FleetOf(0)).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ScaleReport, ShowsEveryRun) {
  const std::vector<Arrival> arrivals = ShortDay(1);
  FleetOptions options = FleetOf(8);
  options.bin_seconds = 120;
  const std::vector<FleetRun> runs = {{"first", *RunFleet(arrivals, options)},
                                      {"second", *RunFleet(arrivals, FleetOf(5))}};
  EXPECT_THAT(ScaleTable(runs, options), HasSubstr("| second | 5 to 5 | 2.5 |"));
  const nlohmann::json json = ScaleToJson(runs, options);
  EXPECT_EQ(json["runs"][0]["fleet"], "first");
  EXPECT_EQ(json["runs"][1]["bin_replicas"].size(), runs[1].result.bins.size());
  const std::string plot = ScalePlot(runs, options);
  for (const char* part :
       {"<svg", "first</text>", "second</text>", "Replicas", "99th", "Cost", "</svg>"}) {
    EXPECT_THAT(plot, HasSubstr(part));
  }
  EXPECT_EQ(plot.find("nan"), std::string::npos);
  EXPECT_EQ(plot.find("inf"), std::string::npos);
}

}  // namespace
}  // namespace sluice::loadtest
