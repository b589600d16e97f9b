#include "engine/journal/machine_pace.h"

#include <chrono>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// Returns a span from `begin` to `end` milliseconds that is all work.
WorkSpan Span(int64_t begin, int64_t end, double expected) {
  return {milliseconds(begin), milliseconds(end), 1e-3 * static_cast<double>(end - begin),
          1e-3 * expected};
}

TEST(MachinePace, PaceIsOneWithoutSpans) {
  EXPECT_EQ(MachinePace().Stretch(milliseconds(7), milliseconds(3)), milliseconds(3));
  EXPECT_EQ(MachinePace().Between(milliseconds(1), milliseconds(2)), 1);
  const MachinePace nothing({{milliseconds(1), milliseconds(2), 0, 1},
                             {milliseconds(2), milliseconds(3), 1, 0},
                             {milliseconds(4), milliseconds(4), 1, 2}});
  EXPECT_EQ(nothing.Stretch(milliseconds(7), milliseconds(3)), milliseconds(3));
}

TEST(MachinePace, WorkIsStretchedByThePaceOfEachSpan) {
  const MachinePace pace({Span(0, 10, 10), Span(10, 30, 5), Span(30, 40, 10)});
  EXPECT_EQ(pace.Stretch(milliseconds(0), milliseconds(10)), milliseconds(10));
  EXPECT_EQ(pace.Stretch(milliseconds(5), milliseconds(6)), milliseconds(9)) << "5 + 4 * 1";
  EXPECT_EQ(pace.Stretch(milliseconds(8), milliseconds(10)), milliseconds(25)) << "2 + 20 + 3";
  EXPECT_EQ(pace.Stretch(milliseconds(36), milliseconds(7)), milliseconds(7)) << "the run repeats";
  EXPECT_EQ(pace.Stretch(milliseconds(40), milliseconds(50)), milliseconds(80)) << "two runs";
  EXPECT_DOUBLE_EQ(pace.Between(milliseconds(10), milliseconds(30)), 4);
  EXPECT_DOUBLE_EQ(pace.Between(milliseconds(0), milliseconds(40)), 40.0 / 25);
  EXPECT_EQ(pace.Between(milliseconds(20), milliseconds(20)), 1) << "no time";
}

TEST(MachinePace, TimesAreRounded) {
  const MachinePace pace({Span(0, 7, 4)});
  EXPECT_EQ(pace.Stretch(nanoseconds(0), nanoseconds(1)), nanoseconds(2)) << "of 1.75";
  EXPECT_EQ(pace.Stretch(nanoseconds(0), nanoseconds(3)), nanoseconds(5)) << "of 5.25";
}

// Sums of many runs are rounded, so a time may seem to be before the start of its run.
TEST(MachinePace, WorkMayEndAtTheEndOfARun) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(0.5, 2);
  for (int trial = 0; trial < 10'000; ++trial) {
    const nanoseconds end(static_cast<int64_t>(uniform(random) * 1e12));
    const double seconds = 1e-9 * static_cast<double>(end.count()), expected = uniform(random);
    const MachinePace pace({{nanoseconds(0), end, seconds, seconds * expected}});
    const auto runs = static_cast<double>(500 + random() % 500);
    const double work = std::floor(runs * 1e9 * seconds * expected);
    const nanoseconds time = pace.Stretch(nanoseconds(0), nanoseconds(static_cast<int64_t>(work)));
    ASSERT_NEAR(static_cast<double>(time.count()), work / expected, 10)
        << runs << " runs of " << end.count() << " ns, " << expected << " of them work";
  }
}

TEST(MachinePace, BetweenSpansThePaceOfTheLastWindowApplies) {
  const int64_t window = MachinePace::kWindow / milliseconds(1);
  // A daemon may have been idle for years.
  const int64_t years = (int64_t{1} << 33) * window;
  const MachinePace pace({Span(2 * window, 2 * window + 2, 1),
                          Span(2 * window + 2, 2 * window + 6, 1),
                          Span(3 * window, 3 * window + 4, 1), Span(years, years + 1, 2)});
  const auto at = [&](int64_t begin) {
    return pace.Between(milliseconds(begin), milliseconds(begin + 1));
  };
  EXPECT_NEAR(at(0), 3, 1e-6) << "before the first span";
  EXPECT_NEAR(at(2 * window + 1), 2, 1e-6);
  EXPECT_NEAR(at(2 * window + 3), 4, 1e-6);
  EXPECT_NEAR(at(2 * window + 10), 3, 1e-6) << "6 ms for 2";
  EXPECT_NEAR(at(100 * window), 4, 1e-3);
}

TEST(MachinePace, ARunBeginsAtZero) {
  const MachinePace pace({Span(-2, -1, 3), Span(0, 2, 1), Span(10, 12, 1)});
  EXPECT_DOUBLE_EQ(pace.Between(milliseconds(4), milliseconds(5)), 2) << "the pace since then";
}

TEST(MachinePace, ASpanEndsWhenTheNextBegins) {
  const MachinePace pace({Span(10, 20, 10), Span(0, 15, 5)});
  EXPECT_DOUBLE_EQ(pace.Between(milliseconds(0), milliseconds(10)), 3);
  EXPECT_DOUBLE_EQ(pace.Between(milliseconds(10), milliseconds(20)), 1);
}

// The work of each span takes its measured time, and splitting work does not change its total
// time.
TEST(MachinePace, RepeatsTheRunAndWorkMayBeSplitAnywhere) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> share(0.01, 1);
  std::vector<WorkSpan> spans;
  nanoseconds at{};
  for (int i = 0; i < 300; ++i) {
    if (random() % 3 == 0) at += nanoseconds(random() % 400'000'000);
    const nanoseconds end = at + nanoseconds(1000 + random() % 30'000'000);
    const double seconds = std::chrono::duration<double>(end - at).count();
    spans.push_back({at, end, seconds, seconds * 3 * share(random)});
    at = end;
  }
  const MachinePace pace(spans);
  // A nanosecond of work takes up to a hundred nanoseconds.
  const auto near = [](nanoseconds a, nanoseconds b) {
    return std::chrono::abs(a - b).count() < 200;
  };
  for (const WorkSpan& span : spans) {
    const nanoseconds work(static_cast<int64_t>(1e9 * span.expected_seconds));
    EXPECT_PRED2(near, pace.Stretch(span.begin, work), span.end - span.begin);
    const nanoseconds all = work * static_cast<int64_t>(1 + random() % 2000);
    const nanoseconds part(static_cast<int64_t>(share(random) * static_cast<double>(all.count())));
    const nanoseconds first = pace.Stretch(span.begin, part);
    EXPECT_PRED2(near, pace.Stretch(span.begin, all),
                 first + pace.Stretch(span.begin + first, all - part));
  }
}

}  // namespace
}  // namespace sluice
