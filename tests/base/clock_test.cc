#include "base/clock.h"

#include <atomic>
#include <thread>

#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"

namespace sluice {
namespace {

TEST(RealClock, WaitsUntilTheDeadline) {
  Clock* const clock = Clock::Real();
  Mutex mu;
  CondVar cv;
  const MonoTime deadline = clock->Now() + std::chrono::milliseconds(2);
  MutexLock lock(&mu);
  while (clock->Now() < deadline) clock->WaitUntil(&cv, &mu, deadline);
  clock->WaitUntil(&cv, &mu, deadline);  // passed: returns
}

TEST(RealClock, IsWokenBySignals) {
  for (const MonoTime deadline : {MonoTime::max(), Clock::Real()->Now() + std::chrono::hours(1)}) {
    Mutex mu;
    CondVar cv;
    bool ready = false;
    std::thread waker([&] {
      MutexLock lock(&mu);
      ready = true;
      cv.Signal();
    });
    {
      MutexLock lock(&mu);
      while (!ready) Clock::Real()->WaitUntil(&cv, &mu, deadline);
    }
    waker.join();
  }
}

TEST(FakeClock, AdvanceWakesWaiters) {
  FakeClock clock;
  const MonoTime deadline = clock.Now() + std::chrono::seconds(5);
  Mutex mu;
  CondVar cv;
  std::atomic<bool> passed = false;
  std::thread waiter([&] {
    MutexLock lock(&mu);
    while (clock.Now() < deadline) clock.WaitUntil(&cv, &mu, deadline);
    passed = true;
  });
  clock.AwaitWaiter(deadline);
  EXPECT_FALSE(passed);
  clock.Advance(std::chrono::seconds(5));
  waiter.join();
  EXPECT_TRUE(passed);
}

}  // namespace
}  // namespace sluice
