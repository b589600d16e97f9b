#include "base/periodic_thread.h"

#include <gtest/gtest.h>

#include <memory>

#include "tests/support/fake_clock.h"
#include "tests/support/gate.h"

namespace sluice {
namespace {

using std::chrono::seconds;

TEST(PeriodicThread, RunsOneIntervalAfterTheEndOfTheRunBefore) {
  FakeClock clock;
  const MonoTime start = clock.Now();
  int runs = 0;
  PeriodicThread thread(&clock, seconds(10), [&] {
    ++runs;
    clock.Advance(seconds(3));  // as if the run took 3 s
  });
  clock.AwaitWaiter(start + seconds(10));
  EXPECT_EQ(runs, 0);
  clock.Advance(seconds(9));
  clock.Advance(seconds(1));
  clock.AwaitWaiter(start + seconds(23));
  EXPECT_EQ(runs, 1);
  clock.Advance(seconds(10));
  clock.AwaitWaiter(start + seconds(36));
  EXPECT_EQ(runs, 2);
}

TEST(PeriodicThread, RunsAtTheTimesThatItsFunctionReturns) {
  FakeClock clock;
  const MonoTime start = clock.Now();
  int runs = 0;
  PeriodicThread thread(&clock, start,
                        [&] { return ++runs == 1 ? start + seconds(5) : MonoTime::max(); });
  clock.AwaitWaiter(start + seconds(5));
  EXPECT_EQ(runs, 1);
  clock.Advance(seconds(5));
  clock.AwaitWaiter(MonoTime::max());
  EXPECT_EQ(runs, 2);
}

TEST(PeriodicThread, AWakeStartsARunAtOnceAndAnotherOneDuringIt) {
  FakeClock clock;
  Gate begun, ended;
  begun.Open();
  int runs = 0;
  PeriodicThread thread(&clock, MonoTime::max(), [&] {
    ++runs;
    begun.Pass();
    ended.Pass();
    return MonoTime::max();
  });
  clock.AwaitWaiter(MonoTime::max());
  thread.Wake();
  begun.AwaitArrivals(1);
  for (int i = 0; i < 3; ++i) thread.Wake();
  ended.Open();
  begun.AwaitArrivals(2);
  clock.AwaitWaiter(MonoTime::max());
  EXPECT_EQ(runs, 2) << "three wakes during a run are one";
}

TEST(PeriodicThread, EndsWithoutWaitingForTheNextTime) {
  FakeClock clock;
  bool ran = false;
  {
    PeriodicThread thread(&clock, seconds(10), [&] { ran = true; });
  }
  EXPECT_FALSE(ran);
}

TEST(PeriodicThread, TheDestructorWaitsForTheRunInProgress) {
  FakeClock clock;
  Gate begun, gate;
  begun.Open();
  bool ended = false;
  auto thread = std::make_unique<PeriodicThread>(&clock, clock.Now(), [&] {
    begun.Pass();
    gate.Pass();
    ended = true;
    return clock.Now();  // would run again at once if the thread were not ending
  });
  begun.AwaitArrivals(1);
  gate.Open();
  thread.reset();
  EXPECT_TRUE(ended);
}

}  // namespace
}  // namespace sluice
