// The speed of the machine during a recorded run, over time.
#pragma once

#include <chrono>
#include <vector>

#include "base/clock.h"

namespace sluice {

// A period of work in a recorded run: a step, including the host's work before and after it.
struct WorkSpan {
  nanoseconds begin{}, end{};   // since the run's first arrival
  double seconds = 0;           // duration of the work, excluding the time taken by arrivals
  double expected_seconds = 0;  // from the run's costs and host times
};

// Pace is measured time divided by expected time; 2 means half speed. During a span the pace is the
// pace of that span, so that other work is slowed down in the same way. Between spans it is the
// mean over the last quarter second in which spans began, because a shared machine stays slow for
// seconds.
class MachinePace {
 public:
  static constexpr nanoseconds kWindow = std::chrono::milliseconds(250);

  // The pace is 1 at all times.
  MachinePace() = default;
  // If a span begins before the previous span has ended, the previous span is cut there.
  // Ignores spans without measured or expected time, and spans that begin before the first arrival.
  explicit MachinePace(std::vector<WorkSpan> spans);

  // Returns the duration of work that starts at `since` (relative to the first arrival) and takes
  // `work` at pace 1. After its end, the recorded run repeats.
  nanoseconds Stretch(nanoseconds since, nanoseconds work) const;

  // Returns the mean pace between two times, `begin` <= `end`.
  double Between(nanoseconds begin, nanoseconds end) const;

 private:
  // The amount of work, in nanoseconds, done by a time, in nanoseconds.
  struct Knot {
    double time, work;
  };

  // Returns the other coordinate on the line through the knots. The line repeats after its end.
  // Requires knots.
  double At(double Knot::*from, double value, double Knot::*to) const;

  std::vector<Knot> knots_;  // both strictly ascend, from 0 on; none, or at least two
};

}  // namespace sluice
