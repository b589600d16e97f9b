// Makes a loaded model ready to serve: packs its weights, prepares the plan of the largest bucket
// and the others that options.ladder.warm_up_us allows, measures a cost law, and creates slots for
// steps.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "engine/backend.h"
#include "engine/observer.h"
#include "engine/options.h"
#include "engine/runner/steps/prepared_model.h"

namespace sluice {

// The memory for a model that is prepared together with others.
struct WarmUpRoom {
  int64_t models = 1;         // the number of models, with this one, that are still to be prepared
  int64_t later_weights = 0;  // about the bytes of the weights of the others among them
  // The bytes that no model uses or may come to use. The device's free memory counts only the bytes
  // that are in use now.
  int64_t free_bytes = std::numeric_limits<int64_t>::max();
  // The model's draft model if it is served; nullptr: it is loaded for this model.
  std::shared_ptr<const ExecutableModel> draft = nullptr;
};

// Returns the InvalidArgument of WarmUp as far as it follows from the options, the model's
// configuration and the device.
absl::Status CheckOptions(const EngineOptions& options, const Model& model, const Backend& backend);

// Loads a model and prepares it. After loading, takes options.ladder.warm_up_us, or longer if the
// largest plan and the smallest steps need more. The remaining buckets are left to LaterPlans, but
// a padded ladder is prepared completely. If the ladder file applies, starts with its ladder (for
// kAdaptive) and its costs; of a packed ladder only the smallest steps are then timed. If the file
// does not apply, it is ignored with a notice to the observer.
// Unless the options set them, the KV pages and the size of steps follow from the model's share of
// `room`.
// Returns the backend's errors, or InvalidArgument, which names the option, if an option is out of
// range. The objects that the pointers refer to are not owned and outlive the result.
absl::StatusOr<PreparedModel> WarmUp(const std::shared_ptr<const Model>& model,
                                     const EngineOptions& options, Backend* backend, Clock* clock,
                                     Observer* observer, const WarmUpRoom& room = {});

}  // namespace sluice
