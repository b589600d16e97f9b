// Runs steps of a model before it serves, to learn what they cost.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "base/clock.h"
#include "engine/bucket.h"
#include "engine/model/model.h"
#include "engine/runner/models/warm_up.h"

namespace sluice {

// How a step is timed.
struct StepTrial {
  int32_t runs;                           // the median of these is taken; 0 takes no time
  std::chrono::milliseconds warm_for{0};  // how long it runs untimed, at least once
};

// Times `tokens` of the bucket in the fewest rows, which have the most context, and half of them in
// as many rows as the bucket holds, which sample the most, so that the terms of the cost law can be
// told apart, and adds both to the costs of `prepared`. The bucket's plan is published, and the
// model has a slot. Returns the error of a step that fails.
absl::Status TimeTokens(int32_t tokens, const Bucket& bucket,
                        const std::shared_ptr<const Model>& model, Clock* clock,
                        const StepTrial& trial, PreparedModel* prepared);

}  // namespace sluice
