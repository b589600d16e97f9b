// The heartbeat of a scheduling thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace sluice {

// The thread says what it is at, a watchdog reads it; neither waits for the other. Whoever is late with
// a replay may be abandoned: from then on what the replay works on is the watchdog's, and Replayed tells
// the thread so when it comes back after all.
class Pulse {
 public:
  enum class Phase : uint64_t {
    kIdle,       // waits for work: no time is too long
    kBusy,       // what takes no time to speak of
    kReplay,     // waits for the device
    kAbandoned,  // for good
  };
  struct Beat {
    uint64_t serial = 0;  // another one for each beat
    Phase phase = Phase::kIdle;
    nanoseconds allowed{0};  // kReplay: what it may take
  };

  // The thread's.
  void Idle() { Begin(Phase::kIdle); }
  void Busy() { Begin(Phase::kBusy); }
  void Replaying(nanoseconds allowed) {
    allowed_.store(allowed.count(), std::memory_order_relaxed);
    Begin(Phase::kReplay);
  }
  // Busy again. False when it was abandoned.
  bool Replayed() {
    uint64_t replaying = state_.load(std::memory_order_relaxed);
    if (PhaseOf(replaying) != Phase::kReplay) return false;
    return state_.compare_exchange_strong(replaying, After(replaying, Phase::kBusy),
                                          std::memory_order_acq_rel);
  }

  // The watchdog's.
  Beat Read() const {
    const uint64_t state = state_.load(std::memory_order_acquire);
    return {state >> kPhaseBits, PhaseOf(state),
            nanoseconds(allowed_.load(std::memory_order_relaxed))};
  }
  // Takes the replay `serial` from the thread. False when it has ended.
  bool Abandon(uint64_t serial) {
    uint64_t replaying = (serial << kPhaseBits) | static_cast<uint64_t>(Phase::kReplay);
    return state_.compare_exchange_strong(replaying, After(replaying, Phase::kAbandoned),
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

}  // namespace sluice
