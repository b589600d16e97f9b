#include "loadtest/load/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace sluice::load {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct Case {
  Objective objective{milliseconds(100), 99};
  nanoseconds measured = seconds(10);
  PhaseStats stats;
  CpuUse cpu{1.2, 0.7};
  std::optional<Reconciliation> reconciled;

  Case() {
    stats.calls = 1000;
    stats.lateness.p99 = milliseconds(1);
  }
  std::vector<std::string> Reasons() const {
    return ReasonsAgainst({}, objective, measured, stats, cpu, reconciled);
  }
};

TEST(ReasonsAgainst, ThereAreNoneAtTheLimits) {
  Case at_limits;
  at_limits.reconciled = Reconciliation{900, 100, 1000, 0, 0};
  EXPECT_THAT(at_limits.Reasons(), IsEmpty());
}

TEST(ReasonsAgainst, ASlowOrFailingServerIsAResult) {
  Case slow;
  slow.stats.latency.p99 = seconds(30);
  slow.stats.outcomes[static_cast<size_t>(Outcome::kError)] = 500;
  slow.stats.outcomes[static_cast<size_t>(Outcome::kRejected)] = 500;
  EXPECT_THAT(slow.Reasons(), IsEmpty());
}

TEST(ReasonsAgainst, EachFaultIsNamedWithItsLimit) {
  const struct {
    std::function<void(Case&)> fault;
    const char* reason;
  } cases[] = {
      {[](Case& c) { c.measured = milliseconds(9900); }, "measured for 9.9 s, under 10.0 s"},
      {[](Case& c) { c.stats.calls = 999; }, "999 calls, under 1000"},
      {[](Case& c) { c.objective.percentile = 99.9; }, "1000 calls, under 10000"},
      {[](Case& c) { c.stats.lateness.p99 = microseconds(1001); },
       "99th percentile 1.001 ms, over 1.000 ms"},
      {[](Case& c) { c.objective.latency = milliseconds(50); }, "over 0.500 ms"},
      {[](Case& c) { c.cpu.busiest_thread = 0.71; }, "used 71 % of a core, over 70 %"},
      {[](Case& c) { c.stats.outcomes[static_cast<size_t>(Outcome::kNotSent)] = 3; },
       "3 calls were not sent"},
      {[](Case& c) { c.stats.wrong = 2; }, "2 answers differ"},
      {[](Case& c) {
         c.reconciled = Reconciliation{900, 100, 899, 0, 0};
       },
       "900 good answers, the server counts 899"},
      {[](Case& c) {
         c.reconciled = Reconciliation{900, 100, 1001, 0, 0};
       },
       "900 good answers, the server counts 1001"},
  };
  for (const auto& each : cases) {
    Case faulty;
    each.fault(faulty);
    EXPECT_THAT(faulty.Reasons(), ElementsAre(HasSubstr(each.reason)));
  }
}

}  // namespace
}  // namespace sluice::load
