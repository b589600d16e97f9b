// Simulates the answers of Prometheus about a fleet's replicas.
#pragma once

#include <deque>

#include "loadtest/scale/autoscaler.h"

namespace sluice::loadtest {

// The scraped samples of one replica. After the replica's end they count while a window still
// covers them.
class Samples {
 public:
  // Adds a sample. Times ascend, and `busy` is a counter.
  void Add(double now, double drain, double busy);
  // Removes samples that are more than `seconds` old.
  void Keep(double now, double seconds);

  // Returns the target's value over the samples within the window before `now`: avg_over_time of
  // the drain, or rate of the counter, without Prometheus's extrapolation beyond the first and the
  // last sample. Returns 0 without enough samples.
  double Over(double now, const ScalingTarget& target) const;

 private:
  struct Sample {
    double at, drain, busy;
  };
  std::deque<Sample> samples_;
};

}  // namespace sluice::loadtest
