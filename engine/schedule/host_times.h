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
  // What an arrival takes of the processors that steps run on; 0 where these are others. A step, or
  // the time after it, is longer by that for each arrival meanwhile, which is not in the others.
  double arrival_seconds = 0;

  nanoseconds Wake() const { return Rounded(wake_seconds); }
  nanoseconds Turnaround(size_t sequences) const {
    return Rounded(turnaround_seconds +
                   turnaround_seconds_per_sequence * static_cast<double>(sequences));
  }
  nanoseconds Arrivals(size_t count) const {
    return Rounded(arrival_seconds * static_cast<double>(count));
  }

 private:
  static nanoseconds Rounded(double seconds) { return nanoseconds(std::llround(seconds * 1e9)); }
};

// Fits the times to those of a run, by least squares.
class HostTimesFit {
 public:
  // Takes the time from the end of a step of `sequences` until the next one, for which sequences
  // waited already, and the arrivals in that time.
  void AddTurnaround(size_t sequences, int64_t arrivals, double seconds);
  void AddWake(double seconds) {
    ++wakes_;
    wake_seconds_ += seconds;
  }
  // Takes what a step took and was expected to take, and the arrivals within each of these times
  // from its begin. A step that is slow for another reason has more of the former but not of the
  // latter, `foreseen`, which are the instrument by which the time of an arrival is estimated.
  void AddStep(double expected_seconds, double seconds, int64_t arrivals, int64_t foreseen);

  // Returns the fit, none of whose times is negative, and 0 where there are no data.
  HostTimes times() const;

 private:
  double ArrivalSeconds() const;

  double turnarounds_ = 0, x_ = 0, xx_ = 0, y_ = 0, xy_ = 0, n_ = 0, xn_ = 0;
  double wakes_ = 0, wake_seconds_ = 0;
  // Sums over the steps: z are the expected arrivals; the last two are over the expected time.
  double expected_ = 0, took_ = 0, arrivals_ = 0, z_ = 0, z_took_ = 0, z_arrivals_ = 0;
};

}  // namespace sluice
