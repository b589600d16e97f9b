// Notices that a scheduling thread has stopped getting anywhere.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <thread>

#include "base/clock.h"
#include "base/mutex.h"
#include "engine/runner/heartbeat.h"

namespace sluice {

struct Hang {
  Pulse::Beat beat;
  nanoseconds watched{0};  // how long it has lasted, at least
  nanoseconds allowed{0};
};

// Decides from successive looks at a pulse. Time between two looks counts as far as it is about `tick`:
// a process that was stopped, or a machine that was asleep, finds that hours have passed in which its
// device could do nothing either. Pure.
class HangJudge {
 public:
  // `busy` is what anything but a replay and idleness may take.
  HangJudge(nanoseconds tick, nanoseconds busy) : tick_(tick), busy_(busy) {}

  // Looks are about a tick apart. True when the present beat lasts for longer than it may; `hang` is
  // set then.
  bool Look(const Pulse::Beat& beat, MonoTime now, Hang* hang);

 private:
  const nanoseconds tick_, busy_;
  MonoTime last_{};
  uint64_t serial_ = std::numeric_limits<uint64_t>::max();  // of no beat
  nanoseconds watched_{0};
};

// Looks at a pulse eight times in `busy` on a thread of its own, and calls `on_hang` on it, once, at the
// first hang. `clock` and `pulse` are not owned and outlive it.
class Watchdog {
 public:
  using OnHang = std::function<void(const Hang&)>;
  Watchdog(nanoseconds busy, const Pulse* pulse, Clock* clock, OnHang on_hang);
  ~Watchdog();

 private:
  void Run();

  const nanoseconds tick_;
  const Pulse* const pulse_;
  Clock* const clock_;
  const OnHang on_hang_;
  HangJudge judge_;

  Mutex mu_;
  CondVar wake_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;  // last: starts when all else is built
};

}  // namespace sluice
