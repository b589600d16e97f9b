#include "engine/schedule/finish_times.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <random>

#include "gtest/gtest.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;

// Compares the turns of random flows with a map that forgets nothing.
TEST(FinishTimes, ForgetsOnlyTimesThatHaveNoEffect) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    FinishTimes times;
    std::map<FlowKey, MonoTime> all;
    MonoTime now{};
    for (int i = 0; i < 50'000; ++i) {
      now += milliseconds(random() % 3);
      const FlowKey flow{random() % 20'000, 1 + random() % 3};
      const auto known = all.find(flow);
      const MonoTime start = known == all.end() ? now : std::max(now, known->second);
      ASSERT_EQ(times.StartOf(flow, now), start);
      all[flow] = start + milliseconds(random() % 1000);
      times.Set(flow, all[flow], now);
    }
    EXPECT_GT(all.size(), 30'000u);
    EXPECT_LE(times.size(), 2 * 1024u) << "at most about 1000 flows are ahead of the clock";
  }
}

TEST(FinishTimes, FewTimesAreKeptWhileTheClockStands) {
  FinishTimes times;
  for (uint32_t caller = 1; caller <= 4 * FinishTimes::kMaxFlows; ++caller) {
    times.Set({caller, 1}, MonoTime(milliseconds(1)), MonoTime());
    ASSERT_LE(times.size(), FinishTimes::kMaxFlows);
    ASSERT_EQ(times.StartOf({caller, 1}, MonoTime()), MonoTime(milliseconds(1)));
  }
}

}  // namespace
}  // namespace sluice
