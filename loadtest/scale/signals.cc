#include "loadtest/scale/signals.h"

#include <algorithm>
#include <cstddef>

namespace sluice::loadtest {

void Samples::Add(double now, double drain, double busy) { samples_.push_back({now, drain, busy}); }

void Samples::Keep(double now, double seconds) {
  while (!samples_.empty() && samples_.front().at < now - seconds) samples_.pop_front();
}

double Samples::Over(double now, const ScalingTarget& target) const {
  const auto first = std::ranges::find_if(
      samples_, [&](const Sample& sample) { return sample.at > now - target.window_seconds; });
  if (first == samples_.end()) return 0;
  const Sample& last = samples_.back();
  if (target.signal == Signal::kBusy) {
    return last.at > first->at ? (last.busy - first->busy) / (last.at - first->at) : 0;
  }
  double sum = 0;
  for (auto it = first; it != samples_.end(); ++it) sum += it->drain;
  return sum / static_cast<double>(samples_.end() - first);
}

}  // namespace sluice::loadtest
