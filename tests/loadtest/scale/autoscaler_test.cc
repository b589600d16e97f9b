#include "loadtest/scale/autoscaler.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "loadtest/scale/rule_file.h"
#include "loadtest/scale/signals.h"
#include "tests/support/table.h"

namespace sluice::loadtest {
namespace {

AutoscalerRule Rule() {
  return {
      .min_replicas = 2,
      .max_replicas = 10,
      .targets = {{.signal = Signal::kDrain, .per_replica = 0.5, .window_seconds = 60},
                  {.signal = Signal::kBusy, .per_replica = 0.7, .window_seconds = 60}},
      .up = {.policies = {{.percent = true, .value = 100, .period_seconds = 30}}},
      .down = {.stabilization_seconds = 600, .policies = {{.value = 1, .period_seconds = 120}}}};
}

struct AutoscalerRow {
  const char* name;
  int replicas;
  double drain, busy;  // summed over the replicas
  int expected;
};
class AutoscalerTable : public TableTest<AutoscalerRow> {};

TEST_P(AutoscalerTable, UsesTheTargetWithTheMostReplicas) {
  EXPECT_EQ(Autoscaler(Rule()).Decide(0, row().replicas, {row().drain, row().busy}),
            row().expected);
}

const AutoscalerRow kAutoscalerRows[] = {
    {.name = "IdleReplicasAreNoFewerThanTheMinimum",
     .replicas = 2,
     .drain = 0,
     .busy = 0,
     .expected = 2},
    {.name = "TheQueueAsksForMoreRoundedUp",
     .replicas = 4,
     .drain = 2.6,
     .busy = 0.1,
     .expected = 6},
    {.name = "TheWorkAsksForMore", .replicas = 4, .drain = 0.1, .busy = 3.6, .expected = 6},
    {.name = "ATenthOverTheTargetIsTolerated",
     .replicas = 4,
     .drain = 2.19,
     .busy = 3.0,
     .expected = 4},
    {.name = "ReplicasAreNoMoreThanTheMaximum",
     .replicas = 8,
     .drain = 100,
     .busy = 8,
     .expected = 10},
    {.name = "ReplicasAreAtMostDoubled", .replicas = 2, .drain = 100, .busy = 2, .expected = 4},
};
SLUICE_TABLE(AutoscalerTable, kAutoscalerRows);

TEST(Autoscaler, DoublesOncePerPeriod) {
  Autoscaler autoscaler(Rule());
  EXPECT_EQ(autoscaler.Decide(0, 2, {50, 0}), 4);
  EXPECT_EQ(autoscaler.Decide(15, 4, {50, 0}), 4);
  EXPECT_EQ(autoscaler.Decide(30, 4, {50, 0}), 8);
}

TEST(Autoscaler, KeepsTheFirstCountForAWindow) {
  Autoscaler autoscaler(Rule());
  EXPECT_EQ(autoscaler.Decide(0, 5, {0, 0}), 5);
  EXPECT_EQ(autoscaler.Decide(599, 5, {0, 0}), 5);
  EXPECT_EQ(autoscaler.Decide(600, 5, {0, 0}), 4);
}

TEST(Autoscaler, GoesDownOneByOneAfterTheWindow) {
  Autoscaler autoscaler(Rule());
  int replicas = 8;
  EXPECT_EQ(autoscaler.Decide(0, replicas, {4, 0}), 8);
  std::vector<double> removed;
  for (double now = 15; now < 1200; now += 15) {
    const int after = autoscaler.Decide(now, replicas, {0, 0});
    ASSERT_TRUE(after == replicas || after == replicas - 1) << now;
    if (after < replicas) removed.push_back(now);
    replicas = after;
  }
  EXPECT_EQ(removed, (std::vector<double>{600, 720, 840, 960, 1080}));
}

TEST(Samples, GiveAveragesAndRates) {
  Samples samples;
  for (int i = 0; i <= 8; ++i) samples.Add(15 * i, i, 6 * i);
  const ScalingTarget drain{.signal = Signal::kDrain, .per_replica = 1, .window_seconds = 60};
  const ScalingTarget busy{.signal = Signal::kBusy, .per_replica = 1, .window_seconds = 60};
  // The samples after 60 s are 5 to 8.
  EXPECT_DOUBLE_EQ(samples.Over(120, drain), 6.5);
  EXPECT_DOUBLE_EQ(samples.Over(120, busy), 0.4);
  EXPECT_DOUBLE_EQ(samples.Over(170, drain), 8);
  EXPECT_DOUBLE_EQ(samples.Over(170, busy), 0);  // a rate needs two samples
  samples.Keep(170, 60);
  EXPECT_DOUBLE_EQ(samples.Over(120, drain), 8);
  EXPECT_DOUBLE_EQ(samples.Over(180, drain), 0);
}

std::string Deploy(const char* file) { return std::string(SLUICE_SOURCE_DIR "/deploy/") + file; }

void ExpectEqual(const ScalingDirection& a, const ScalingDirection& b) {
  EXPECT_EQ(a.stabilization_seconds, b.stabilization_seconds);
  ASSERT_EQ(a.policies.size(), b.policies.size());
  for (size_t i = 0; i < a.policies.size(); ++i) {
    EXPECT_EQ(a.policies[i].percent, b.policies[i].percent);
    EXPECT_EQ(a.policies[i].value, b.policies[i].value);
    EXPECT_EQ(a.policies[i].period_seconds, b.policies[i].period_seconds);
  }
}

TEST(ReadScalingRule, BothAutoscalersHaveTheSameRule) {
  const auto keda = ReadScalingRule(Deploy("kubernetes/overlays/keda/scaled_object.yaml"), "");
  const auto hpa = ReadScalingRule(Deploy("kubernetes/overlays/hpa/autoscaler.yaml"),
                                   Deploy("prometheus/adapter_rules.yaml"));
  ASSERT_TRUE(keda.ok()) << keda.status();
  ASSERT_TRUE(hpa.ok()) << hpa.status();
  EXPECT_EQ(keda->min_replicas, hpa->min_replicas);
  EXPECT_EQ(keda->max_replicas, hpa->max_replicas);
  ExpectEqual(keda->up, hpa->up);
  ExpectEqual(keda->down, hpa->down);
  ASSERT_EQ(keda->targets.size(), hpa->targets.size());
  for (size_t i = 0; i < keda->targets.size(); ++i) {
    EXPECT_EQ(keda->targets[i].signal, hpa->targets[i].signal);
    EXPECT_DOUBLE_EQ(keda->targets[i].per_replica, hpa->targets[i].per_replica);
    EXPECT_EQ(keda->targets[i].window_seconds, hpa->targets[i].window_seconds);
  }
  EXPECT_EQ(keda->targets[0].signal, Signal::kDrain);
  EXPECT_GT(keda->down.stabilization_seconds, keda->up.stabilization_seconds);
}

TEST(ReadScalingRule, NamesTheUnsupportedPart) {
  const std::string manifest = Deploy("kubernetes/overlays/hpa/autoscaler.yaml");
  const std::string other = Deploy("kubernetes/base/deployment.yaml");
  for (const auto& rule : {ReadScalingRule(manifest, other), ReadScalingRule(other, ""),
                           ReadScalingRule("missing.yaml", "")}) {
    EXPECT_EQ(rule.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(rule.status().message().find(".yaml: "), absl::string_view::npos) << rule.status();
  }
}

}  // namespace
}  // namespace sluice::loadtest
