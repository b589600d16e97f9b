#include "loadtest/load/arrivals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/support/table.h"

namespace sluice::load {
namespace {

using std::chrono::seconds;

WorkloadOptions Options(ArrivalKind kind, uint64_t seed = 1) {
  WorkloadOptions options;
  options.arrivals = kind;
  options.seed = seed;
  return options;
}

std::vector<int64_t> PerSecond(const std::vector<Arrival>& arrivals, size_t length) {
  std::vector<int64_t> counts(length);
  for (const Arrival& arrival : arrivals) ++counts[static_cast<size_t>(arrival.at / seconds(1))];
  return counts;
}

// Returns variance / mean of the counts, which is 1 for a Poisson process.
double Dispersion(const std::vector<int64_t>& counts) {
  const auto n = static_cast<double>(counts.size());
  double sum = 0;
  double squares = 0;
  for (int64_t count : counts) {
    sum += static_cast<double>(count);
    squares += static_cast<double>(count * count);
  }
  return (squares / n - sum / n * sum / n) / (sum / n);
}

TEST(MakeSchedule, ArrivesInOrderAtTheMeanRate) {
  for (const ArrivalKind kind : {ArrivalKind::kExponential, ArrivalKind::kConstant}) {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      SCOPED_TRACE(testing::Message() << "seed " << seed);
      const auto arrivals = MakeSchedule(Options(kind, seed), {}, 100, seconds(100));
      ASSERT_TRUE(arrivals.ok());
      EXPECT_NEAR(static_cast<double>(arrivals->size()), 10'000, 600);  // 6 standard deviations
      EXPECT_TRUE(std::is_sorted(arrivals->begin(), arrivals->end(),
                                 [](const Arrival& a, const Arrival& b) { return a.at < b.at; }));
      EXPECT_LT(arrivals->back().at, seconds(100));
    }
  }
}

TEST(MakeSchedule, TheSameSeedGivesTheSameSchedule) {
  const auto one = MakeSchedule(Options(ArrivalKind::kExponential, 7), {}, 50, seconds(10));
  const auto same = MakeSchedule(Options(ArrivalKind::kExponential, 7), {}, 50, seconds(10));
  const auto other = MakeSchedule(Options(ArrivalKind::kExponential, 8), {}, 50, seconds(10));
  ASSERT_TRUE(one.ok() && same.ok() && other.ok());
  ASSERT_EQ(one->size(), same->size());
  for (size_t i = 0; i < one->size(); ++i) {
    EXPECT_EQ((*one)[i].at, (*same)[i].at);
    EXPECT_EQ((*one)[i].tokens, (*same)[i].tokens);
  }
  EXPECT_NE((*one)[0].at, (*other)[0].at);
}

TEST(MakeSchedule, ConstantArrivalsAreEvenlySpaced) {
  const auto arrivals = MakeSchedule(Options(ArrivalKind::kConstant), {}, 4, seconds(2));
  ASSERT_TRUE(arrivals.ok());
  ASSERT_EQ(arrivals->size(), 8u);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ((*arrivals)[i].at, std::chrono::milliseconds(250) * static_cast<int64_t>(i));
  }
}

TEST(MakeSchedule, BurstsKeepTheMeanButAreNotAPoissonProcess) {
  const auto poisson = MakeSchedule(Options(ArrivalKind::kExponential), {}, 100, seconds(1000));
  const auto bursty = MakeSchedule(Options(ArrivalKind::kBursty), {}, 100, seconds(1000));
  ASSERT_TRUE(poisson.ok() && bursty.ok());
  EXPECT_NEAR(static_cast<double>(bursty->size()), 100'000, 15'000);
  EXPECT_NEAR(Dispersion(PerSecond(*poisson, 1000)), 1, 0.3);
  EXPECT_GT(Dispersion(PerSecond(*bursty, 1000)), 20);
}

TEST(MakeSchedule, ATraceKeepsItsTimesAndRepeats) {
  const std::vector<TraceRow> trace = {{0, 10, 3}, {1, 20, 4}, {2, 999, 300}};
  WorkloadOptions options = Options(ArrivalKind::kTrace);
  options.lengths = "trace";
  options.cap = 100;
  options.max_tokens_from_trace = true;
  const auto arrivals = MakeSchedule(options, trace, 0, seconds(6));
  ASSERT_TRUE(arrivals.ok());
  ASSERT_EQ(arrivals->size(), 6u);
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ((*arrivals)[i].at, seconds(i));
  EXPECT_EQ((*arrivals)[4].tokens, 20);
  EXPECT_EQ((*arrivals)[4].max_tokens, 4);
  EXPECT_EQ((*arrivals)[5].tokens, 100) << "cut to the cap";
  EXPECT_EQ((*arrivals)[5].max_tokens, 0) << "prompt and answer together stay within the cap";
}

TEST(MakeSchedule, PromptAndAnswerStayWithinTheCap) {
  WorkloadOptions options;
  options.lengths = "uniform:1:500";
  options.cap = 100;
  options.max_tokens = 30;
  const auto arrivals = MakeSchedule(options, {}, 1000, seconds(1));
  ASSERT_TRUE(arrivals.ok());
  int32_t longest = 0;
  for (const Arrival& arrival : *arrivals) {
    EXPECT_EQ(arrival.max_tokens, 30);
    longest = std::max(longest, arrival.tokens);
  }
  EXPECT_EQ(longest, 70);
}

TEST(MakeSchedule, ATraceIsStretchedToTheRate) {
  const std::vector<TraceRow> trace = {{0, 10, 0}, {1, 10, 0}, {3, 10, 0}};
  WorkloadOptions options = Options(ArrivalKind::kTrace);
  const auto arrivals = MakeSchedule(options, trace, 10, seconds(30));
  ASSERT_TRUE(arrivals.ok());
  EXPECT_NEAR(static_cast<double>(arrivals->size()), 300, 3);
  const auto gap = [&](size_t i) { return ((*arrivals)[i + 1].at - (*arrivals)[i].at).count(); };
  EXPECT_NEAR(static_cast<double>(gap(1)) / static_cast<double>(gap(0)), 2, 1e-6);
}

struct BadWorkloadRow {
  const char* name;
  WorkloadOptions options{};
  std::vector<TraceRow> trace{};
  double rate;
  const char* error;
};
class BadWorkloadTable : public TableTest<BadWorkloadRow> {};

TEST_P(BadWorkloadTable, IsNamed) {
  const auto made = MakeSchedule(row().options, row().trace, row().rate, seconds(100));
  EXPECT_THAT(std::string(made.status().message()), ::testing::HasSubstr(row().error));
}

const BadWorkloadRow kBadWorkloadRows[] = {
    {.name = "ARateOfZero", .rate = 0, .error = "rate"},
    {.name = "ANegativeRate", .rate = -1, .error = "rate"},
    {.name = "ARateThatIsNotANumber", .rate = NAN, .error = "rate"},
    {.name = "TooManyArrivals", .rate = 1e7, .error = "20 million"},
    {.name = "ABurstFactorOfOne",
     .options = {.arrivals = ArrivalKind::kBursty, .burst_factor = 1},
     .rate = 1,
     .error = "burst-factor"},
    {.name = "NegativeMaxTokens", .options = {.max_tokens = -2}, .rate = 1, .error = "max-tokens"},
    {.name = "MaxTokensOfTheWholeCap",
     .options = {.max_tokens = WorkloadOptions().cap},
     .rate = 1,
     .error = "max-tokens"},
    {.name = "LengthsOfAMissingTrace",
     .options = {.lengths = "trace"},
     .rate = 1,
     .error = "needs --trace"},
    {.name = "ArrivalsOfAMissingTrace",
     .options = Options(ArrivalKind::kTrace),
     .rate = 1,
     .error = "needs --trace"},
    {.name = "ATraceWithoutDuration",
     .options = Options(ArrivalKind::kTrace),
     .trace = {{0, 1, 0}, {0, 1, 0}},
     .rate = 0,
     .error = "the trace has no duration"},
    {.name = "ATraceWithoutDurationAtARate",
     .options = Options(ArrivalKind::kTrace),
     .trace = {{0, 1, 0}, {0, 1, 0}},
     .rate = 5,
     .error = "the trace has no duration"},
};
SLUICE_TABLE(BadWorkloadTable, kBadWorkloadRows);

}  // namespace
}  // namespace sluice::load
