// How fast the machine of a recorded run was, at each time of it.
#pragma once

#include <chrono>
#include <vector>

#include "base/clock.h"

namespace sluice {

// A time in which a recorded run worked: a step, with what the host did before and after it.
struct WorkSpan {
  nanoseconds begin{}, end{};   // since the run's first arrival
  double seconds = 0;           // that the work took, without what arrivals took meanwhile
  double expected_seconds = 0;  // by the run's costs and its host's times
};

// The pace is what work takes over what it is expected to take. That of a span holds for its time,
// so that other work takes its share of what was slow then. Between the spans it is that of the
// last quarter of a second in which spans began, because a machine that others share is slower for
// seconds.
class MachinePace {
 public:
  static constexpr nanoseconds kWindow = std::chrono::milliseconds(250);

  // Has the pace 1 at all times.
  MachinePace() = default;
  // A span that begins before the one before it has ended takes the rest of its time. Ignores those
  // that took or were expected to take no time, or began before the first arrival.
  explicit MachinePace(std::vector<WorkSpan> spans);

  // Returns the time that work takes from `since` the first arrival on, where it takes `work` at
  // the pace 1. The run begins anew when it is over.
  nanoseconds Stretch(nanoseconds since, nanoseconds work) const;

  // Returns the pace between these times, which ascend.
  double Between(nanoseconds begin, nanoseconds end) const;

 private:
  // The nanoseconds of work that are done by a time, in nanoseconds.
  struct Knot {
    double time, work;
  };

  // Returns the other coordinate of the line through the knots, which is repeated at its end.
  // Requires knots.
  double At(double Knot::*from, double value, double Knot::*to) const;

  std::vector<Knot> knots_;  // both strictly ascend, from 0 on; none, or at least two
};

}  // namespace sluice
