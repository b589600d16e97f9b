#include "engine/schedule/host_times.h"

#include <algorithm>

namespace sluice {

HostTimes HostTimesFit::times() const {
  HostTimes times;
  if (wakes_ > 0) times.wake_seconds = std::max(wake_seconds_ / wakes_, 0.0);
  if (turnarounds_ == 0) return times;
  const double spread = turnarounds_ * xx_ - x_ * x_;
  double slope = spread > 0 ? (turnarounds_ * xy_ - x_ * y_) / spread : 0;
  // A line through 0 where the best one would begin below it.
  if (slope * x_ > y_) slope = xy_ / xx_;
  slope = std::max(slope, 0.0);
  times.turnaround_seconds_per_sequence = slope;
  times.turnaround_seconds = std::max((y_ - slope * x_) / turnarounds_, 0.0);
  return times;
}

}  // namespace sluice
