// Makes a loaded model ready to serve: its weights packed, the plan of the largest bucket and as
// many others as options.ladder.warm_up_us allows, a law of costs, and slots to run steps in.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "engine/backend.h"
#include "engine/ladder/ladder.h"
#include "engine/observer.h"
#include "engine/options.h"
#include "engine/plans/ladder_file.h"
#include "engine/plans/plan_cache.h"
#include "engine/runner/steps/execution_slot.h"
#include "engine/schedule/cost_model.h"

namespace sluice {

// Members are destroyed in the reverse order, users before what they use.
struct PreparedModel {
  std::unique_ptr<ExecutableModel> executable;
  BackendInfo info;  // of the backend, with what the model adds to its profile
  LadderLimits limits;
  std::shared_ptr<const Ladder> ladder;
  std::unique_ptr<PlanCache> plans;  // one for each bucket of the ladder, prepared or awaited
  int64_t evicted = 0;               // the buckets for which memory_limit_bytes left no room
  PagedScheduler::Options kv;
  std::vector<std::unique_ptr<ExecutionSlot>> slots;  // one for each step that may be in progress
  // Restored from the ladder file, or has observed at least the smallest bucket, each once filled
  // and once in another shape.
  CostModel costs;
  std::optional<LadderFile> file;  // if the options name one
  LadderChoice ladder_kept;        // the choice in the file, which is applied
  nanoseconds duration{0};         // of WarmUp
};

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
