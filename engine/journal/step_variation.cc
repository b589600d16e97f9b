#include "engine/journal/step_variation.h"

#include <algorithm>

namespace sluice {
namespace {

// Returns what the step took without its arrivals.
double Alone(const RecordedStep& step, double arrival_seconds) {
  return std::max(step.seconds - arrival_seconds * static_cast<double>(step.arrivals), 0.0);
}

size_t WindowOf(nanoseconds since) {
  return std::max(since, nanoseconds::zero()) / StepVariation::kWindow;
}

// Returns the pace of each window; one without steps has that of the whole run.
std::vector<float> PaceOf(std::span<const RecordedStep> steps, double arrival_seconds) {
  struct Sums {
    double took = 0, expected = 0;
  };
  Sums all;
  std::vector<Sums> windows;
  for (const RecordedStep& step : steps) {
    const size_t window = WindowOf(step.begun);
    if (window >= windows.size()) windows.resize(window + 1);
    for (Sums* sums : {&all, &windows[window]}) {
      sums->took += Alone(step, arrival_seconds);
      sums->expected += step.expected_seconds;
    }
  }
  std::vector<float> pace;
  for (const Sums& window : windows) {
    const Sums& known = window.took > 0 && window.expected > 0 ? window : all;
    pace.push_back(known.expected > 0 ? static_cast<float>(known.took / known.expected) : 1);
  }
  return pace;
}

}  // namespace

double StepVariation::PaceAt(nanoseconds since) const {
  return pace.empty() ? 1 : pace[WindowOf(since) % pace.size()];
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
