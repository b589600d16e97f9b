// Who may enter the queue.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "engine/clock.h"
#include "engine/options.h"
#include "engine/schedule/scheduler.h"

namespace sluice {

// What a request takes of the queue from Submit to its end.
struct RequestLoad {
  int64_t tokens = 0;  // each row's max_tokens included
  int64_t bytes = 0;
  int priority = kDefaultPriority;
};

// The bounds of the queue: requests that wait or run, their tokens and their memory. Level p may take
// what leaves the whole at most at priority_share^(p - 1) of each bound (rounded up), so that the last
// of it is kept for those more urgent; a request that has the queue to itself may take all of it. Not
// thread-safe.
class AdmissionBudget {
 public:
  explicit AdmissionBudget(const QueueOptions& options);

  // The error names the bound that would be exceeded; nothing is taken then. ResourceExhausted, or
  // InvalidArgument when an empty queue could not take the load either.
  absl::Status Take(const RequestLoad& load);
  void Return(const RequestLoad& load);

  int64_t bytes() const { return bytes_; }

 private:
  double ShareOf(int priority) const;

  const QueueOptions options_;
  int64_t requests_ = 0;
  int64_t tokens_ = 0;
  int64_t bytes_ = 0;
};

// A request with a deadline that asks to be admitted.
struct Due {
  MonoTime deadline{};
  int priority = kDefaultPriority;
  int64_t rows = 1;
  int64_t tokens = 0;   // the fewest of its prompts that must be computed
  int64_t steps = 0;    // that its rows probably take after those
  int64_t context = 0;  // positions that each of these attends to, about
};

// Time until it is done, at the measured costs: after the prompts that wait, are due no later and no less
// urgent; then in steps that carry these too, and the `running` sequences, or others that take their
// place. What else waits has no effect, since urgent ones go first. Zero when nothing runs and nothing is
// ahead, or nothing was measured.
nanoseconds TimeNeeded(const Due& due, int64_t running, const Scheduler& scheduler);

// How far off such estimates were. One that is too low by a little would, under overload, admit everybody
// and have everybody miss his deadline; so a request that missed its own counts as if it had taken twice as
// long again. Not thread-safe.
class ForecastError {
 public:
  // That estimates are to be multiplied by; in [1/4, 8], 1 at first.
  double factor() const { return factor_; }
  // `needed`: as it was estimated, not zero; `took`: from its arrival to its end or its deadline.
  void Learn(nanoseconds needed, nanoseconds took, bool missed);

 private:
  double factor_ = 1;
};

}  // namespace sluice
