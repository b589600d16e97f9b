// How the durations of a run's steps vary around what its costs say of them.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/btree_map.h"
#include "base/clock.h"
#include "engine/schedule/cost_model.h"

namespace sluice {

// A step of a recorded run.
struct RecordedStep {
  StepShape shape{};
  nanoseconds begun{};  // since the run's first arrival
  double seconds = 0;
  double expected_seconds = 0;  // by the run's costs
  int64_t arrivals = 0;         // while it ran
};

// A machine that others share is slower for some seconds and then quicker again, for steps of every
// size; beside that each step varies by itself.
struct StepVariation {
  static constexpr nanoseconds kWindow = std::chrono::milliseconds(250);

  // By windows since the first arrival: what the steps that began in it took together, without what
  // arrivals took of it, over what the costs say. A window without steps is as the one before it.
  absl::btree_map<int64_t, float> pace;
  // The same of the steps of each bucket in order, each over what the costs and the pace say.
  absl::btree_map<Bucket, std::vector<float>> factors;

  // Returns the pace at this time since the first arrival; the run begins anew when it is over. 1
  // if there were no steps.
  double PaceAt(nanoseconds since) const;
};

// Requires steps in the order of the run; `arrival_seconds` is HostTimes' of the run.
StepVariation VariationOf(std::span<const RecordedStep> steps, double arrival_seconds);

}  // namespace sluice
