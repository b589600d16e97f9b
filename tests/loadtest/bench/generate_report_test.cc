#include "loadtest/bench/daemon/generate_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

namespace sluice::loadtest {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

load::CallRecord Call(int scheduled_ms, int first_ms, int done_ms, uint32_t payload = 0) {
  load::CallRecord call;
  call.scheduled = milliseconds(scheduled_ms);
  call.first = milliseconds(first_ms);
  call.done = milliseconds(done_ms);
  call.payload = payload;
  call.outcome = load::Outcome::kOk;
  return call;
}

GenerateFigures Figures(double tokens_per_s, double first_p50_ms) {
  GenerateFigures figures;
  figures.tokens_per_s = tokens_per_s;
  figures.first_p50_ms = first_p50_ms;
  figures.calls = 7;
  return figures;
}

TEST(FiguresOfTest, ThroughputCountsAnswersThatEndInThePhase) {
  load::PhaseData data;
  data.duration = milliseconds(3000);
  // The calls end in the warm-up, start in it, lie within the phase and end after it.
  data.calls = {Call(0, 100, 900), Call(500, 1200, 1400, 1), Call(1500, 1600, 2000),
                Call(2900, 2950, 3000, 1)};
  const GenerateFigures figures = FiguresOf(data, {11, 21}, milliseconds(1000), 0.5);
  EXPECT_DOUBLE_EQ(figures.tokens_per_cpu_s, (11 + 21 + 11 + 21) / 0.5);
  EXPECT_DOUBLE_EQ(figures.tokens_per_s, (21 + 11) / 2.0);
  EXPECT_DOUBLE_EQ(figures.requests_per_s, 1);
  EXPECT_EQ(figures.calls, 4);
  EXPECT_EQ(figures.failed, 0);
}

TEST(FiguresOfTest, LatencyIsOfRequestsSentInThePhase) {
  load::PhaseData data;
  data.duration = milliseconds(3000);
  data.calls = {Call(900, 2900, 2901), Call(1500, 1600, 2100), Call(2900, 3200, 4000, 1)};
  const GenerateFigures figures = FiguresOf(data, {11, 21}, milliseconds(1000), 1);
  EXPECT_DOUBLE_EQ(figures.first_p50_ms, 100);
  EXPECT_DOUBLE_EQ(figures.first_p99_ms, 300);
  EXPECT_DOUBLE_EQ(figures.between_p50_ms, 40);
  EXPECT_DOUBLE_EQ(figures.between_p99_ms, 50);
}

TEST(FiguresOfTest, AnAnswerInOnePieceHasItsFirstTokenAtItsEnd) {
  load::PhaseData data;
  data.duration = milliseconds(1000);
  data.calls = {Call(100, 0, 150)};
  const GenerateFigures figures = FiguresOf(data, {1}, milliseconds(0), 1);
  EXPECT_DOUBLE_EQ(figures.first_p50_ms, 50);
  EXPECT_EQ(figures.between_p50_ms, 0);
}

TEST(FiguresOfTest, AFailedCallCountsAsFailedOnly) {
  load::PhaseData data;
  data.duration = milliseconds(1000);
  data.calls = {Call(100, 200, 300)};
  data.calls[0].outcome = load::Outcome::kRejected;
  const GenerateFigures figures = FiguresOf(data, {5}, milliseconds(0), 1);
  EXPECT_EQ(figures.failed, 1);
  EXPECT_EQ(figures.tokens_per_s, 0);
  EXPECT_EQ(figures.first_p50_ms, 0);
}

TEST(GenerateReportTest, RatiosAreTakenRoundByRound) {
  BatchingResult result;
  result.outstanding = 32;
  result.fixed = {Figures(100, 80), Figures(200, 40), Figures(100, 0)};
  result.continuous = {Figures(300, 8), Figures(400, 8), Figures(500, 8)};
  const Spread throughput = ThroughputRatio(result);
  EXPECT_DOUBLE_EQ(throughput.median, 3);
  EXPECT_DOUBLE_EQ(throughput.min, 2);
  EXPECT_DOUBLE_EQ(throughput.max, 5);
  const Spread first = FirstTokenRatio(result, &GenerateFigures::first_p50_ms);
  EXPECT_DOUBLE_EQ(first.median, 0.1);
  EXPECT_EQ(first.min, 0);

  GenerateResult all{{result}, {{4, {Figures(10, 1)}}}};
  const nlohmann::json report = GenerateJson(all);
  EXPECT_EQ(report["batching"][0]["throughput_ratio"]["median"], 3);
  EXPECT_EQ(report["batching"][0]["continuous"]["calls"], 21);
  EXPECT_EQ(report["concurrency"][0]["outstanding"], 4);
  EXPECT_EQ(report["concurrency"][0]["tokens_per_s"]["median"], 10);
}

TEST(GenerateReportTest, TheTablesNameLoadsAndArms) {
  GenerateResult all;
  all.batching = {{.outstanding = 32}, {.rate = 12}};
  all.batching[0].fixed = all.batching[0].continuous = {Figures(100, 80)};
  all.concurrency = {{16, {Figures(100, 80)}}};
  const std::string text = GenerateTables(all);
  EXPECT_THAT(text,
              HasSubstr("| closed loop, 32 at a time | static | 100 (100 to 100) | 0 | 80.0 |"));
  EXPECT_THAT(text, HasSubstr("| open loop, 12/s | continuous |"));
  EXPECT_THAT(text, HasSubstr("| 16 | 100 (100 to 100) |"));
}

}  // namespace
}  // namespace sluice::loadtest
