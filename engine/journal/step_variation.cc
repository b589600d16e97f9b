#include "engine/journal/step_variation.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace sluice {
namespace {

// Returns what the step took without its arrivals.
double Alone(const RecordedStep& step, double arrival_seconds) {
  return std::max(step.seconds - arrival_seconds * static_cast<double>(step.arrivals), 0.0);
}

int64_t WindowOf(nanoseconds since) {
  return std::max(since, nanoseconds::zero()) / StepVariation::kWindow;
}

absl::btree_map<int64_t, float> PaceOf(std::span<const RecordedStep> steps,
                                       double arrival_seconds) {
  absl::btree_map<int64_t, std::pair<double, double>> sums;  // what steps took, and were to take
  for (const RecordedStep& step : steps) {
    auto& [took, expected] = sums[WindowOf(step.begun)];
    took += Alone(step, arrival_seconds);
    expected += step.expected_seconds;
  }
  absl::btree_map<int64_t, float> pace;
  for (const auto& [window, sum] : sums) {
    const auto& [took, expected] = sum;
    if (took > 0 && expected > 0) pace[window] = static_cast<float>(took / expected);
  }
  return pace;
}

}  // namespace

double StepVariation::PaceAt(nanoseconds since) const {
  if (pace.empty()) return 1;
  const auto next = pace.upper_bound(WindowOf(since) % (pace.rbegin()->first + 1));
  return next == pace.begin() ? next->second : std::prev(next)->second;
}

StepVariation VariationOf(std::span<const RecordedStep> steps, double arrival_seconds) {
  StepVariation variation{.pace = PaceOf(steps, arrival_seconds), .factors = {}};
  for (const RecordedStep& step : steps) {
    const double expected = step.expected_seconds * variation.PaceAt(step.begun);
    variation.factors[step.shape.bucket].push_back(
        expected > 0 ? static_cast<float>(Alone(step, arrival_seconds) / expected) : 1);
  }
  return variation;
}

}  // namespace sluice
