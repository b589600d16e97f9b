#include "engine/runner/steps/watchdog.h"

#include <algorithm>
#include <utility>

namespace sluice {
namespace {

constexpr int kTicks = 8;

}  // namespace

bool HangDetector::Poll(const Heartbeat::Sample& sample, MonoTime now, Hang* hang) {
  const nanoseconds passed = std::min(now - last_, 2 * tick_);
  last_ = now;
  watched_ = sample.serial == serial_ ? watched_ + passed : nanoseconds(0);
  serial_ = sample.serial;
  const bool in_step = sample.phase == Heartbeat::Phase::kStep;
  if (!in_step && sample.phase != Heartbeat::Phase::kBusy) return false;
  *hang = {.in_step = in_step, .watched = watched_, .allowed = in_step ? sample.allowed : busy_};
  return watched_ > hang->allowed;
}

Watchdog::Watchdog(nanoseconds busy, const Heartbeat* heartbeat, Clock* clock, OnHang on_hang)
    : tick_(std::max(busy / kTicks, nanoseconds(1))),
      heartbeat_(heartbeat),
      clock_(clock),
      on_hang_(std::move(on_hang)),
      detector_(tick_, busy),
      thread_(clock, clock->Now(), [this] { return Poll(); }) {}

MonoTime Watchdog::Poll() {
  const MonoTime now = clock_->Now();
  const Heartbeat::Sample sample = heartbeat_->Read();
  Hang hang;
  if (!detector_.Poll(sample, now, &hang)) return now + tick_;
  on_hang_(sample, hang);
  return MonoTime::max();
}

}  // namespace sluice
