// Who may enter the queue.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/clock.h"
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
  // Tokens of prompts for each step of a sequence that generates, as of late: who ends makes room for another.
  double prompts_per_step = 0;
};

// Time until it is done, at the measured costs: after the prompts that wait, are due no later and no less
// urgent; then in steps that carry these too, and the `running` sequences, or others that take their
// place, whose prompts come between. What else waits has no effect, since urgent ones go first. Zero when
// nothing runs and nothing is ahead, or nothing was measured.
nanoseconds TimeNeeded(const Due& due, int64_t running, const Scheduler& scheduler);

// How far off such estimates were, as seen from those of the requests admitted that were nearly refused: the
// others say nothing of the bound, since more may come after them, and let it return to what was estimated.
// Under overload many are at the bound, and a forecast that is low by a little would have all of them miss
// their deadlines, in vain; so there is a margin of twice the mean deviation of what was seen, as for the
// retransmission timeout of TCP (RFC 6298), and who missed his deadline counts as if he had taken twice as
// long. Not thread-safe.
class ForecastError {
 public:
  // That estimates are to be multiplied by, margin included; in [1/4, 8].
  double factor() const;

  struct Lesson {
    nanoseconds needed{};   // as it was estimated; zero: it was not
    nanoseconds allowed{};  // from its arrival to its deadline
    nanoseconds took{};     // from its arrival to its end, at most `allowed`
    bool missed = false;
  };
  void Learn(const Lesson& lesson);

 private:
  static constexpr double kFirstDeviation = 0.1;

  // Of the ratio of what was taken to what was estimated; decayed.
  double mean_ = 1;
  double deviation_ = kFirstDeviation;
};

}  // namespace sluice
