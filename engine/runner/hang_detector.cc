#include "engine/runner/hang_detector.h"

#include <algorithm>
#include <utility>

namespace sluice {
namespace {

constexpr int kTicks = 8;

}  // namespace

bool HangJudge::Look(const Pulse::Beat& beat, MonoTime now, Hang* hang) {
  const nanoseconds passed = std::min(now - last_, 2 * tick_);
  last_ = now;
  watched_ = beat.serial == serial_ ? watched_ + passed : nanoseconds(0);
  serial_ = beat.serial;
  const bool replaying = beat.phase == Pulse::Phase::kReplay;
  if (!replaying && beat.phase != Pulse::Phase::kBusy) return false;
  *hang = {.beat = beat, .watched = watched_, .allowed = replaying ? beat.allowed : busy_};
  return watched_ > hang->allowed;
}

Watchdog::Watchdog(nanoseconds busy, const Pulse* pulse, Clock* clock, OnHang on_hang)
    : tick_(std::max(busy / kTicks, nanoseconds(1))),
      pulse_(pulse),
      clock_(clock),
      on_hang_(std::move(on_hang)),
      judge_(tick_, busy),
      thread_([this] { Run(); }) {}

Watchdog::~Watchdog() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    wake_.Signal();
  }
  thread_.join();
}

void Watchdog::Run() {
  Hang hang;
  while (true) {
    const MonoTime now = clock_->Now();
    if (judge_.Look(pulse_->Read(), now, &hang)) return on_hang_(hang);
    MutexLock lock(&mu_);
    while (!stopping_ && clock_->Now() < now + tick_) {
      clock_->WaitUntil(&wake_, &mu_, now + tick_);
    }
    if (stopping_) return;
  }
}

}  // namespace sluice
