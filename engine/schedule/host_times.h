// The time that a host takes beside the steps of its device.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/clock.h"

namespace sluice {

// The times of one host, which depend on its processor and on what its callers ask for.
struct HostTimes {
  double wake_seconds = 0;  // from an arrival at an idle host until its step begins
  // From the end of a step until the next one: results are handed out, messages are read.
  double turnaround_seconds = 0;
  double turnaround_seconds_per_sequence = 0;  // of the step that ended

  nanoseconds Wake() const { return Rounded(wake_seconds); }
  nanoseconds Turnaround(size_t sequences) const {
    return Rounded(turnaround_seconds +
                   turnaround_seconds_per_sequence * static_cast<double>(sequences));
  }

 private:
  static nanoseconds Rounded(double seconds) { return nanoseconds(std::llround(seconds * 1e9)); }
};

// Fits the times to those of a run, by least squares.
class HostTimesFit {
 public:
  // Takes the time from the end of a step of `sequences` until the next one, for which sequences
  // waited already.
  void AddTurnaround(size_t sequences, double seconds) {
    const auto x = static_cast<double>(sequences);
    ++turnarounds_;
    x_ += x;
    xx_ += x * x;
    y_ += seconds;
    xy_ += x * seconds;
  }
  void AddWake(double seconds) {
    ++wakes_;
    wake_seconds_ += seconds;
  }

  // Returns the fit, none of whose times is negative, and 0 where there are no data.
  HostTimes times() const;

 private:
  double turnarounds_ = 0, x_ = 0, xx_ = 0, y_ = 0, xy_ = 0;
  double wakes_ = 0, wake_seconds_ = 0;
};

}  // namespace sluice
