// Detects a scheduling thread that no longer makes progress.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>

#include "base/clock.h"
#include "base/periodic_thread.h"
#include "engine/observer.h"
#include "engine/runner/steps/heartbeat.h"

namespace sluice {

// Decides from successive samples of a heartbeat whether its thread hangs. The time between two
// samples counts only up to about a `tick`: while a process is stopped or a machine is suspended,
// hours may pass in which the device could do nothing either. It uses no clock, lock or thread.
class HangDetector {
 public:
  // `busy` is the time that any phase other than a step and idleness may take.
  HangDetector(nanoseconds tick, nanoseconds busy) : tick_(tick), busy_(busy) {}

  // Takes a sample; samples are about a tick apart. Returns true, and sets `hang`, if the present
  // phase has lasted longer than it may.
  bool Poll(const Heartbeat::Sample& sample, MonoTime now, Hang* hang);

 private:
  const nanoseconds tick_, busy_;
  MonoTime last_{};
  uint64_t serial_ = std::numeric_limits<uint64_t>::max();  // no sample has this number
  nanoseconds watched_{0};
};

// Samples a heartbeat eight times in `busy` on a thread of its own, and calls `on_hang` on it,
// once, at the first hang, with the sample that shows it. `clock` and `heartbeat` are not owned and
// outlive it.
class Watchdog {
 public:
  using OnHang = std::function<void(const Heartbeat::Sample&, const Hang&)>;
  Watchdog(nanoseconds busy, const Heartbeat* heartbeat, Clock* clock, OnHang on_hang);

 private:
  // Takes a sample. Returns the time of the next one.
  MonoTime Poll();

  const nanoseconds tick_;
  const Heartbeat* const heartbeat_;
  Clock* const clock_;
  const OnHang on_hang_;
  HangDetector detector_;
  PeriodicThread thread_;  // last: starts when all else is built
};

}  // namespace sluice
