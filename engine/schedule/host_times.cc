#include "engine/schedule/host_times.h"

#include <algorithm>

namespace sluice {

void HostTimesFit::AddTurnaround(size_t sequences, int64_t arrivals, double seconds) {
  const auto x = static_cast<double>(sequences);
  const auto n = static_cast<double>(arrivals);
  ++turnarounds_;
  x_ += x;
  xx_ += x * x;
  y_ += seconds;
  xy_ += x * seconds;
  n_ += n;
  xn_ += x * n;
}

void HostTimesFit::AddStep(double expected_seconds, double seconds, int64_t arrivals,
                           int64_t foreseen) {
  if (!(expected_seconds > 0)) return;
  const auto n = static_cast<double>(arrivals);
  const auto z = static_cast<double>(foreseen);
  expected_ += expected_seconds;
  took_ += seconds;
  arrivals_ += n;
  z_ += z;
  z_took_ += z * seconds / expected_seconds;
  z_arrivals_ += z * n / expected_seconds;
}

// Solves took = a * expected + b * arrivals for b, with the weight 1 / expected and the instruments
// expected and z.
double HostTimesFit::ArrivalSeconds() const {
  const double determinant = expected_ * z_arrivals_ - z_ * arrivals_;
  if (!(determinant > 0) || arrivals_ == 0) return 0;
  return std::clamp((expected_ * z_took_ - z_ * took_) / determinant, 0.0, took_ / arrivals_);
}

HostTimes HostTimesFit::times() const {
  HostTimes times{.arrival_seconds = ArrivalSeconds()};
  if (wakes_ > 0) times.wake_seconds = std::max(wake_seconds_ / wakes_, 0.0);
  if (turnarounds_ == 0) return times;
  const double y = y_ - times.arrival_seconds * n_;
  const double xy = xy_ - times.arrival_seconds * xn_;
  const double spread = turnarounds_ * xx_ - x_ * x_;
  double slope = spread > 0 ? (turnarounds_ * xy - x_ * y) / spread : 0;
  // If the best line has a negative intercept, uses a line through 0.
  if (slope * x_ > y) slope = xy / xx_;
  slope = std::max(slope, 0.0);
  times.turnaround_seconds_per_sequence = slope;
  times.turnaround_seconds = std::max((y - slope * x_) / turnarounds_, 0.0);
  return times;
}

}  // namespace sluice
