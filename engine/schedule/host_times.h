// The time that a host needs in addition to the steps of its device.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/clock.h"

namespace sluice {

// The times of one host. They depend on its processor and on the requests.
struct HostTimes {
  double wake_seconds = 0;  // from an arrival at an idle host until its step begins
  // From the end of a step until the next step: results are delivered, messages are read.
  double turnaround_seconds = 0;
  double turnaround_seconds_per_sequence = 0;  // of the step that ended
  // The time that an arrival takes from the processors that run steps; 0 if steps run elsewhere. A
  // step, or the time after it, becomes longer by this for each arrival during it. The other fields
  // do not include this time.
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

// Fits the times to the data of a run, by least squares.
class HostTimesFit {
 public:
  // Adds the time from the end of a step of `sequences` until the next step, for which sequences
  // were already waiting, and the number of arrivals in that time.
  void AddTurnaround(size_t sequences, int64_t arrivals, double seconds);
  void AddWake(double seconds) {
    ++wakes_;
    wake_seconds_ += seconds;
  }
  // Adds the measured and the expected duration of a step. `arrivals` and `foreseen` are the
  // numbers of arrivals within the measured and within the expected duration from its begin. If a
  // step is slow for another reason, `arrivals` is larger but `foreseen` is not; `foreseen` is
  // therefore the instrument for estimating the time of an arrival.
  void AddStep(double expected_seconds, double seconds, int64_t arrivals, int64_t foreseen);

  // Returns the fit. Times are not negative, and 0 if there are no data.
  HostTimes times() const;

 private:
  double ArrivalSeconds() const;

  double turnarounds_ = 0, x_ = 0, xx_ = 0, y_ = 0, xy_ = 0, n_ = 0, xn_ = 0;
  double wakes_ = 0, wake_seconds_ = 0;
  // Sums over the steps; z is `foreseen`. The terms of the last two are divided by the step's
  // expected time.
  double expected_ = 0, took_ = 0, arrivals_ = 0, z_ = 0, z_took_ = 0, z_arrivals_ = 0;
};

}  // namespace sluice
