#include "loadtest/load/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/support/table.h"

namespace sluice::load {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct Measurement {
  Objective objective{milliseconds(100), 99};
  nanoseconds measured = seconds(10);
  PhaseStats stats;
  CpuUse cpu{1.2, 0.7};
  std::optional<Reconciliation> reconciled;

  Measurement() {
    stats.calls = 1000;
    stats.lateness.p99 = milliseconds(1);
  }
  std::vector<std::string> Reasons() const {
    return ReasonsAgainst({}, objective, measured, stats, cpu, reconciled);
  }
};

TEST(ReasonsAgainst, ReturnsNothingAtTheLimits) {
  Measurement at_limits;
  at_limits.reconciled = Reconciliation{900, 100, 1000, 0, 0};
  EXPECT_THAT(at_limits.Reasons(), IsEmpty());
}

TEST(ReasonsAgainst, SlowOrFailingServerDoesNotInvalidateTheRun) {
  Measurement slow;
  slow.stats.latency.p99 = seconds(30);
  slow.stats.outcomes[static_cast<size_t>(Outcome::kError)] = 500;
  slow.stats.outcomes[static_cast<size_t>(Outcome::kRejected)] = 500;
  EXPECT_THAT(slow.Reasons(), IsEmpty());
}

struct FaultyMeasurementRow {
  const char* name;
  std::function<void(Measurement&)> fault;
  const char* reason;
};
class FaultyMeasurementTable : public TableTest<FaultyMeasurementRow> {};

TEST_P(FaultyMeasurementTable, IsNamedWithItsLimit) {
  Measurement faulty;
  row().fault(faulty);
  EXPECT_THAT(faulty.Reasons(), ElementsAre(HasSubstr(row().reason)));
}

const FaultyMeasurementRow kFaultyMeasurementRows[] = {
    {.name = "AShortMeasurement",
     .fault = [](Measurement& m) { m.measured = milliseconds(9900); },
     .reason = "measured for 9.9 s, under 10.0 s"},
    {.name = "TooFewCalls",
     .fault = [](Measurement& m) { m.stats.calls = 999; },
     .reason = "999 calls, under 1000"},
    {.name = "TooFewCallsForThePercentile",
     .fault = [](Measurement& m) { m.objective.percentile = 99.9; },
     .reason = "1000 calls, under 10000"},
    {.name = "ALateGenerator",
     .fault = [](Measurement& m) { m.stats.lateness.p99 = microseconds(1001); },
     .reason = "99th percentile 1.001 ms, over 1.000 ms (1 % of the objective). Run it on "
               "processors that the server does not use, or allow more by --max-lateness"},
    {.name = "ALateGeneratorForTheObjective",
     .fault = [](Measurement& m) { m.objective.latency = milliseconds(50); },
     .reason = "over 0.500 ms"},
    {.name = "ABusyGenerator",
     .fault = [](Measurement& m) { m.cpu.busiest_thread = 0.71; },
     .reason = "used 71 % of a core, over 70 %"},
    {.name = "CallsThatWereNotSent",
     .fault = [](Measurement& m) { m.stats.outcomes[static_cast<size_t>(Outcome::kNotSent)] = 3; },
     .reason = "3 calls were not sent"},
    {.name = "AnswersThatDiffer",
     .fault = [](Measurement& m) { m.stats.wrong = 2; },
     .reason = "2 answers differ"},
    {.name = "AServerThatCountsLess",
     .fault =
         [](Measurement& m) {
           m.reconciled = Reconciliation{900, 100, 899, 0, 0};
         },
     .reason = "900 good answers, the server counts 899"},
    {.name = "AServerThatCountsMore",
     .fault =
         [](Measurement& m) {
           m.reconciled = Reconciliation{900, 100, 1001, 0, 0};
         },
     .reason = "900 good answers, the server counts 1001"},
};
SLUICE_TABLE(FaultyMeasurementTable, kFaultyMeasurementRows);

}  // namespace
}  // namespace sluice::load
