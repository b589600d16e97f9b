#include "engine/runner/steps/watchdog.h"

#include <atomic>

#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"

namespace sluice {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using Phase = Heartbeat::Phase;

TEST(Heartbeat, EveryBeatChangesTheSample) {
  Heartbeat heartbeat;
  EXPECT_EQ(heartbeat.Read().phase, Phase::kIdle);
  heartbeat.Busy();
  const Heartbeat::Sample busy = heartbeat.Read();
  EXPECT_EQ(busy.phase, Phase::kBusy);
  heartbeat.Busy();
  EXPECT_NE(heartbeat.Read().serial, busy.serial);
  heartbeat.BeginStep(milliseconds(5));
  EXPECT_EQ(heartbeat.Read().phase, Phase::kStep);
  EXPECT_EQ(heartbeat.Read().allowed, milliseconds(5));
  EXPECT_TRUE(heartbeat.EndStep());
  EXPECT_EQ(heartbeat.Read().phase, Phase::kBusy);
}

TEST(Heartbeat, AReplayIsEitherEndedOrAbandoned) {
  Heartbeat heartbeat;
  heartbeat.BeginStep(milliseconds(5));
  const uint64_t first = heartbeat.Read().serial;
  EXPECT_TRUE(heartbeat.EndStep());
  EXPECT_FALSE(heartbeat.Abandon(first)) << "it has ended";
  heartbeat.BeginStep(milliseconds(5));
  EXPECT_FALSE(heartbeat.Abandon(first)) << "another one";
  EXPECT_TRUE(heartbeat.Abandon(heartbeat.Read().serial));
  EXPECT_FALSE(heartbeat.EndStep());
  EXPECT_EQ(heartbeat.Read().phase, Phase::kAbandoned);
}

struct LookedAt {
  Heartbeat::Sample beat;
  int64_t at_ms;
};

// Returns the index of the poll that finds a hang, or -1. Polls are due every 10 ms; 80 ms are
// allowed outside of replays.
int FirstHang(const std::vector<LookedAt>& looks) {
  HangDetector detector(milliseconds(10), milliseconds(80));
  Hang hang;
  for (size_t i = 0; i < looks.size(); ++i) {
    const MonoTime at = MonoTime(hours(1)) + milliseconds(looks[i].at_ms);
    if (detector.Poll(looks[i].beat, at, &hang)) return static_cast<int>(i);
  }
  return -1;
}

TEST(HangDetector, FindsAHangAfterTheLimitInAwakeTime) {
  const auto steady = [](Heartbeat::Sample beat, int count, int64_t every_ms = 10) {
    std::vector<LookedAt> looks;
    for (int i = 0; i < count; ++i) looks.push_back({beat, i * every_ms});
    return looks;
  };
  const Heartbeat::Sample idle{7, Phase::kIdle, {}}, busy{7, Phase::kBusy, {}};
  const Heartbeat::Sample replay{7, Phase::kStep, milliseconds(200)};
  EXPECT_EQ(FirstHang(steady(idle, 1000)), -1);
  EXPECT_EQ(FirstHang(steady({7, Phase::kAbandoned, {}}, 1000)), -1);
  EXPECT_EQ(FirstHang(steady(busy, 1000)), 9);     // 90 ms
  EXPECT_EQ(FirstHang(steady(replay, 1000)), 21);  // 210 ms
  // The polls are twice as far apart as they should be, as on a busy machine.
  EXPECT_EQ(FirstHang(steady(busy, 1000, 20)), 5);
  // The polls are far apart: the process was stopped, or the machine was suspended.
  EXPECT_EQ(FirstHang(steady(busy, 6, 3'600'000)), 5);

  std::vector<LookedAt> beats;  // of a thread that is busy but not hung
  for (uint64_t i = 0; i < 1000; ++i) {
    beats.push_back({{i / 8, Phase::kStep, milliseconds(80)}, static_cast<int64_t>(i) * 10});
  }
  EXPECT_EQ(FirstHang(beats), -1);

  std::vector<LookedAt> stopped = steady(replay, 3);
  stopped.push_back({replay, 30'020});  // stopped by SIGSTOP for half a minute
  stopped.push_back({{8, Phase::kStep, milliseconds(200)}, 30'030});
  EXPECT_EQ(FirstHang(stopped), -1);
}

TEST(Watchdog, CallsOnHangOnce) {
  FakeClock clock;
  Heartbeat heartbeat;
  Mutex mu;
  CondVar called;
  int calls = 0;
  const auto on_hang = [&](const Heartbeat::Sample& sample, const Hang& hang) {
    EXPECT_EQ(sample.phase, Phase::kStep);
    EXPECT_EQ(hang.allowed, milliseconds(80));
    EXPECT_GT(hang.watched, hang.allowed);
    MutexLock lock(&mu);
    ++calls;
    called.SignalAll();
  };
  Watchdog watchdog(milliseconds(80), &heartbeat, &clock, on_hang);
  MonoTime next = clock.Now() + milliseconds(10);
  const auto tick = [&] {
    clock.AwaitWaiter(next);
    clock.Advance(milliseconds(10));
    next += milliseconds(10);
  };
  for (int i = 0; i < 50; ++i) tick();  // the thread is idle
  clock.AwaitWaiter(next);
  heartbeat.BeginStep(milliseconds(80));
  for (int i = 0; i < 9; ++i) tick();
  clock.AwaitWaiter(next);  // 80 ms have passed, which is just allowed
  {
    MutexLock lock(&mu);
    EXPECT_EQ(calls, 0);
  }
  clock.Advance(milliseconds(10));
  MutexLock lock(&mu);
  while (calls == 0) called.Wait(&mu);
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace sluice
