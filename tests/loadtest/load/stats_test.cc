#include "loadtest/load/stats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace sluice::load {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

CallRecord Call(nanoseconds scheduled, nanoseconds latency, Outcome outcome = Outcome::kOk) {
  CallRecord call;
  call.scheduled = scheduled;
  call.sent = scheduled + milliseconds(1);
  call.done = scheduled + latency;
  call.tokens = 10;
  call.outcome = outcome;
  return call;
}

TEST(Analyse, EveryOutcomeExceptOkMissesTheObjective) {
  PhaseData data;
  data.duration = seconds(2);
  for (int i = 0; i < 8; ++i) data.calls.push_back(Call(milliseconds(1000 + i), milliseconds(20)));
  data.calls.push_back(Call(milliseconds(1500), milliseconds(1), Outcome::kRejected));
  data.calls.push_back(Call(milliseconds(1600), milliseconds(300)));
  const PhaseStats stats = Analyse(data, seconds(1), {milliseconds(100), 80});
  EXPECT_EQ(stats.calls, 10);
  EXPECT_EQ(stats.offered_per_s, 10);
  EXPECT_EQ(stats.answered_per_s, 9);
  EXPECT_EQ(stats.goodput_per_s, 8);
  EXPECT_EQ(stats.tokens_per_s, 90);
  EXPECT_EQ(stats.within, 0.8);
  EXPECT_TRUE(stats.meets_objective);
  EXPECT_FALSE(Analyse(data, seconds(1), {milliseconds(100), 81}).meets_objective);
  EXPECT_EQ(stats.latency.max, milliseconds(300));
  EXPECT_EQ(stats.latency.p50, milliseconds(20));
  EXPECT_EQ(stats.service.p50, milliseconds(19)) << "measured from sending, not from the schedule";
  EXPECT_EQ(stats.rejected.count, 1);
  EXPECT_EQ(stats.rejected.p50, milliseconds(0)) << "measured from sending";
  EXPECT_EQ(stats.lateness.max, milliseconds(1));
}

TEST(Analyse, ThroughputCountsAnswersWhileRequestsArrive) {
  PhaseData data;
  data.duration = seconds(3);
  data.calls = {Call(milliseconds(500), milliseconds(100)),  // arrived in the warm-up
                Call(milliseconds(600), milliseconds(900)),  // counts: the server was busy with it
                Call(milliseconds(2000), milliseconds(500)),
                Call(milliseconds(2500), milliseconds(500))};  // ended after the last arrival
  const PhaseStats stats = Analyse(data, seconds(1), {});
  EXPECT_EQ(stats.calls, 2);
  EXPECT_EQ(stats.answered_per_s, 1);
  EXPECT_EQ(stats.tokens_per_s, 10);
  EXPECT_EQ(stats.latency.count, 2);
}

TEST(Analyse, ExcludesTheWarmUp) {
  PhaseData data;
  data.duration = seconds(2);
  data.calls = {Call(milliseconds(998), milliseconds(1), Outcome::kWrong),
                Call(milliseconds(999), seconds(1)), Call(milliseconds(1000), milliseconds(5))};
  const PhaseStats stats = Analyse(data, seconds(1), {});
  EXPECT_EQ(stats.calls, 1);
  EXPECT_EQ(stats.wrong, 1) << "wrong answers also count in the warm-up";
  EXPECT_EQ(stats.latency.max, milliseconds(5));
}

TEST(Analyse, CountsArrivalsAndAnswersBySecond) {
  PhaseData data;
  data.duration = milliseconds(2500);
  data.calls = {Call(milliseconds(100), milliseconds(1000)),
                Call(milliseconds(200), milliseconds(10), Outcome::kError),
                Call(milliseconds(2400), milliseconds(9000))};
  const std::vector<Second> series = Analyse(data, nanoseconds{0}, {}).seconds;
  ASSERT_EQ(series.size(), 3u);
  EXPECT_EQ(series[0].arrivals, 2);
  EXPECT_EQ(series[0].answers, 0);
  EXPECT_EQ(series[0].outcomes[static_cast<size_t>(Outcome::kError)], 1);
  EXPECT_EQ(series[0].p99, milliseconds(1000));
  EXPECT_EQ(series[1].answers, 1);
  EXPECT_EQ(series[1].tokens, 10);
  EXPECT_EQ(series[2].arrivals, 1);
}

TEST(Analyse, TheCdfAscendsToTheMaximum) {
  PhaseData data;
  data.duration = seconds(1);
  std::mt19937_64 random(3);
  for (int i = 0; i < 5000; ++i) {
    data.calls.push_back(Call(nanoseconds{i}, milliseconds(1 + random() % 1000)));
  }
  const PhaseStats stats = Analyse(data, nanoseconds{0}, {});
  EXPECT_TRUE(std::is_sorted(stats.cdf.begin(), stats.cdf.end()));
  EXPECT_EQ(stats.cdf.back().first, 100);
  EXPECT_EQ(stats.cdf.back().second, static_cast<double>(stats.latency.max.count()) / 1e6);
}

TEST(Analyse, APhaseWithoutCallsMissesTheObjective) {
  PhaseData data;
  data.duration = seconds(1);
  const PhaseStats stats = Analyse(data, nanoseconds{0}, {});
  EXPECT_EQ(stats.calls, 0);
  EXPECT_FALSE(stats.meets_objective);
  EXPECT_TRUE(stats.cdf.empty());
}

}  // namespace
}  // namespace sluice::load
