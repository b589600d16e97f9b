// The heartbeat of a scheduling thread, and the watchdog that detects if the thread makes no
// progress.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>

#include "base/clock.h"
#include "base/periodic_thread.h"
#include "engine/observer.h"

namespace sluice {

// The thread records its phase and a watchdog samples it; neither waits for the other. If a step
// takes too long, the watchdog may abandon its thread. From then on the watchdog owns the data of
// the step, and EndStep returns false if the thread ever returns from the step.
class Heartbeat {
 public:
  enum class Phase : uint64_t {
    kIdle,       // waits for work; no time limit
    kBusy,       // decides and delivers; short
    kStep,       // waits for the device; limited by `allowed`
    kAbandoned,  // permanently abandoned
  };
  struct Sample {
    uint64_t serial = 0;  // changes with each phase
    Phase phase = Phase::kIdle;
    nanoseconds allowed{0};  // for kStep: its time limit
  };

  // Called by the thread.
  void Idle() { Begin(Phase::kIdle); }
  void Busy() { Begin(Phase::kBusy); }
  void BeginStep(nanoseconds allowed) {
    allowed_.store(allowed.count(), std::memory_order_relaxed);
    Begin(Phase::kStep);
  }
  // Returns to kBusy. Returns false if the thread was abandoned.
  bool EndStep() {
    uint64_t in_step = state_.load(std::memory_order_relaxed);
    if (PhaseOf(in_step) != Phase::kStep) return false;
    return state_.compare_exchange_strong(in_step, After(in_step, Phase::kBusy),
                                          std::memory_order_acq_rel);
  }

  // Called by the watchdog.
  Sample Read() const {
    const uint64_t state = state_.load(std::memory_order_acquire);
    return {state >> kPhaseBits, PhaseOf(state),
            nanoseconds(allowed_.load(std::memory_order_relaxed))};
  }
  // Abandons the thread in its step `serial`. Returns false if the step has ended.
  bool Abandon(uint64_t serial) {
    uint64_t in_step = (serial << kPhaseBits) | static_cast<uint64_t>(Phase::kStep);
    return state_.compare_exchange_strong(in_step, After(in_step, Phase::kAbandoned),
                                          std::memory_order_acq_rel);
  }

 private:
  static constexpr int kPhaseBits = 2;
  static Phase PhaseOf(uint64_t state) {
    return static_cast<Phase>(state & ((1u << kPhaseBits) - 1));
  }
  static uint64_t After(uint64_t state, Phase phase) {
    return (((state >> kPhaseBits) + 1) << kPhaseBits) | static_cast<uint64_t>(phase);
  }
  void Begin(Phase phase) {
    state_.store(After(state_.load(std::memory_order_relaxed), phase), std::memory_order_release);
  }

  std::atomic<uint64_t> state_{0};  // serial and phase
  std::atomic<int64_t> allowed_{0};
};

// Decides from successive samples of a heartbeat whether its thread hangs. The time between two
// samples counts for at most 2 * `tick`, because the process or the machine may have been suspended
// between them. Uses no clock, lock or thread.
class HangDetector {
 public:
  // `busy` is the time limit of phases other than a step and idleness.
  HangDetector(nanoseconds tick, nanoseconds busy) : tick_(tick), busy_(busy) {}

  // Takes a sample; samples are about one tick apart. If the current phase has exceeded its time
  // limit, sets `hang` and returns true.
  bool Poll(const Heartbeat::Sample& sample, MonoTime now, Hang* hang);

 private:
  const nanoseconds tick_, busy_;
  MonoTime last_{};
  uint64_t serial_ = std::numeric_limits<uint64_t>::max();  // no sample has this number
  nanoseconds watched_{0};
};

// Samples a heartbeat eight times per `busy` on its own thread. At the first hang, calls `on_hang`
// once on this thread, with the sample that shows the hang. `clock` and `heartbeat` are not owned
// and must outlive it.
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
  PeriodicThread thread_;  // last: starts when everything else is built
};

}  // namespace sluice
