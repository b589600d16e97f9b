// Long work that can be stopped early.
//
//   const Interruptible scope([&] { return late() ? DeadlineError() : absl::OkStatus(); });
//   ...                                             // deep inside of the work, now and then:
//   SLUICE_RETURN_IF_ERROR(CheckInterruption());
#pragma once

#include <cstddef>
#include <functional>

#include "absl/status/status.h"

namespace sluice {

// A scope in which the work of this thread calls `check` to learn whether to continue. Scopes may
// be nested; only the innermost check is called.
class Interruptible {
 public:
  explicit Interruptible(std::function<absl::Status()> check);
  ~Interruptible();
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

 private:
  friend absl::Status CheckInterruption();
  static thread_local const Interruptible* innermost;

  const std::function<absl::Status()> check_;
  const Interruptible* const outer_;
};

// Returns OK if the work may continue, or the error to return from it. Always returns OK outside of
// every scope.
absl::Status CheckInterruption();

// Runs the check once in some thousand short steps, so that it costs almost nothing.
class InterruptionCounter {
 public:
  absl::Status Check(size_t steps = 1) {
    steps_ += steps;
    if (steps_ < kStepsBetween) return absl::OkStatus();
    steps_ = 0;
    return CheckInterruption();
  }

 private:
  static constexpr size_t kStepsBetween = 4096;  // of at most a microsecond: some milliseconds
  size_t steps_ = 0;
};

}  // namespace sluice
