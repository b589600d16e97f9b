// Makes a loaded model ready to serve: its weights packed, the plan of the largest bucket and as
// many others as options.ladder.warm_up_us allows, a law of costs, and slots to run steps in.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "engine/backend.h"
#include "engine/observer.h"
#include "engine/options.h"
#include "engine/runner/steps/prepared_model.h"

namespace sluice {

// Prepares a model: loads it, and then takes options.ladder.warm_up_us, or what the largest plan
// and the smallest steps take if that is more. Buckets beyond that are left to LaterPlans; a padded
// ladder is prepared whole. Begins with the ladder (for kAdaptive) and the costs of the ladder file
// if the file applies; if it does not, it is ignored with a notice to the observer. Costs of a file
// are not measured again.
// Returns the backend's errors, or InvalidArgument that names an option out of its range. Nothing
// is owned; all outlive the result.
absl::StatusOr<PreparedModel> WarmUp(const std::shared_ptr<const Model>& model,
                                     const EngineOptions& options, Backend* backend, Clock* clock,
                                     Observer* observer);

}  // namespace sluice
