#include "engine/runner/hang_detector.h"

#include <atomic>

#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"

namespace sluice {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using Phase = Pulse::Phase;

TEST(Pulse, EachBeatIsAnother) {
  Pulse pulse;
  EXPECT_EQ(pulse.Read().phase, Phase::kIdle);
  pulse.Busy();
  const Pulse::Beat busy = pulse.Read();
  EXPECT_EQ(busy.phase, Phase::kBusy);
  pulse.Busy();
  EXPECT_NE(pulse.Read().serial, busy.serial);
  pulse.Replaying(milliseconds(5));
  EXPECT_EQ(pulse.Read().phase, Phase::kReplay);
  EXPECT_EQ(pulse.Read().allowed, milliseconds(5));
  EXPECT_TRUE(pulse.Replayed());
  EXPECT_EQ(pulse.Read().phase, Phase::kBusy);
}

TEST(Pulse, AReplayIsEitherEndedOrAbandoned) {
  Pulse pulse;
  pulse.Replaying(milliseconds(5));
  const uint64_t first = pulse.Read().serial;
  EXPECT_TRUE(pulse.Replayed());
  EXPECT_FALSE(pulse.Abandon(first)) << "it has ended";
  pulse.Replaying(milliseconds(5));
  EXPECT_FALSE(pulse.Abandon(first)) << "another one";
  EXPECT_TRUE(pulse.Abandon(pulse.Read().serial));
  EXPECT_FALSE(pulse.Replayed());
  EXPECT_EQ(pulse.Read().phase, Phase::kAbandoned);
}

struct LookedAt {
  Pulse::Beat beat;
  int64_t at_ms;
};

// Ticks of 10 ms; 80 ms are allowed but for replays. The index of the look that finds a hang, or -1.
int FirstHang(const std::vector<LookedAt>& looks) {
  HangJudge judge(milliseconds(10), milliseconds(80));
  Hang hang;
  for (size_t i = 0; i < looks.size(); ++i) {
    const MonoTime at = MonoTime(hours(1)) + milliseconds(looks[i].at_ms);
    if (judge.Look(looks[i].beat, at, &hang)) return static_cast<int>(i);
  }
  return -1;
}

TEST(HangJudge, Judges) {
  const auto steady = [](Pulse::Beat beat, int count, int64_t every_ms = 10) {
    std::vector<LookedAt> looks;
    for (int i = 0; i < count; ++i) looks.push_back({beat, i * every_ms});
    return looks;
  };
  const Pulse::Beat idle{7, Phase::kIdle, {}}, busy{7, Phase::kBusy, {}};
  const Pulse::Beat replay{7, Phase::kReplay, milliseconds(200)};
  EXPECT_EQ(FirstHang(steady(idle, 1000)), -1);
  EXPECT_EQ(FirstHang(steady({7, Phase::kAbandoned, {}}, 1000)), -1);
  EXPECT_EQ(FirstHang(steady(busy, 1000)), 9);     // 90 ms
  EXPECT_EQ(FirstHang(steady(replay, 1000)), 21);  // 210 ms
  // The looks are twice as far apart as they should be, as on a machine with much to do.
  EXPECT_EQ(FirstHang(steady(busy, 1000, 20)), 5);
  // Farther: the process was stopped, or the machine asleep.
  EXPECT_EQ(FirstHang(steady(busy, 6, 3'600'000)), 5);

  std::vector<LookedAt> beats;  // saturated, not hung
  for (uint64_t i = 0; i < 1000; ++i) {
    beats.push_back({{i / 8, Phase::kReplay, milliseconds(80)}, static_cast<int64_t>(i) * 10});
  }
  EXPECT_EQ(FirstHang(beats), -1);

  std::vector<LookedAt> stopped = steady(replay, 3);
  stopped.push_back({replay, 30'020});  // by SIGSTOP, for half a minute
  stopped.push_back({{8, Phase::kReplay, milliseconds(200)}, 30'030});
  EXPECT_EQ(FirstHang(stopped), -1);
}

TEST(Watchdog, CallsOnceAtTheFirstHang) {
  FakeClock clock;
  Pulse pulse;
  Mutex mu;
  CondVar called;
  int calls = 0;
  const auto on_hang = [&](const Hang& hang) {
    EXPECT_EQ(hang.beat.phase, Phase::kReplay);
    EXPECT_EQ(hang.allowed, milliseconds(80));
    EXPECT_GT(hang.watched, hang.allowed);
    MutexLock lock(&mu);
    ++calls;
    called.SignalAll();
  };
  Watchdog watchdog(milliseconds(80), &pulse, &clock, on_hang);
  MonoTime next = clock.Now() + milliseconds(10);
  const auto tick = [&] {
    clock.AwaitWaiter(next);
    clock.Advance(milliseconds(10));
    next += milliseconds(10);
  };
  for (int i = 0; i < 50; ++i) tick();  // idle
  clock.AwaitWaiter(next);
  pulse.Replaying(milliseconds(80));
  for (int i = 0; i < 9; ++i) tick();
  clock.AwaitWaiter(next);  // 80 ms were watched: as long as it may
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
