// Makes a loaded model ready to serve: packs its weights, prepares the plan of the largest bucket
// and the others that options.ladder.warm_up_us allows, measures a cost law, and creates slots for
// steps.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "engine/backend.h"
#include "engine/observer.h"
#include "engine/options.h"
#include "engine/runner/steps/prepared_model.h"

namespace sluice {

// Loads a model and prepares it. After loading, takes options.ladder.warm_up_us, or longer if the
// largest plan and the smallest steps need more. The remaining buckets are left to LaterPlans, but
// a padded ladder is prepared completely. If the ladder file applies, starts with its ladder (for
// kAdaptive) and its costs; of a packed ladder only the smallest steps are then timed. If the file
// does not apply, it is ignored with a notice to the observer.
// Returns the backend's errors, or InvalidArgument, which names the option, if an option is out of
// range. The objects that the pointers refer to are not owned and outlive the result.
absl::StatusOr<PreparedModel> WarmUp(const std::shared_ptr<const Model>& model,
                                     const EngineOptions& options, Backend* backend, Clock* clock,
                                     Observer* observer);

}  // namespace sluice
