// Makes a loaded model ready to serve: its weights packed, a ladder whose plans are all prepared
// and timed, and slots to run them in.
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
#include "engine/runner/execution_slot.h"
#include "engine/schedule/cost_model.h"

namespace sluice {

// Members are destroyed in the reverse order, users before what they use.
struct PreparedModel {
  std::unique_ptr<ExecutableModel> executable;
  BackendInfo info;  // of the backend, with what the model adds to its profile
  LadderLimits limits;
  std::shared_ptr<const Ladder> ladder;
  std::unique_ptr<PlanCache> plans;  // one for each bucket of the ladder
  int64_t evicted = 0;               // the buckets for which memory_limit_bytes left no room
  PagedScheduler::Options kv;
  std::vector<std::unique_ptr<ExecutionSlot>> slots;  // one for each step that may be in progress
  CostModel costs;                 // has observed each bucket once filled and once in another shape
  std::optional<LadderFile> file;  // if the options name one
};

// Returns whether the policy computes rectangles; its ladder is then fixed.
bool IsPadded(PolicyKind policy);

// Prepares a model; takes seconds. Begins with the ladder (for kAdaptive) and the costs of the
// ladder file if the file applies; if it does not, it is ignored with a notice to the observer.
// Returns the backend's errors, or InvalidArgument that names an option out of its range. Nothing
// is owned; all outlive the result.
absl::StatusOr<PreparedModel> WarmUp(const std::shared_ptr<const Model>& model,
                                     const EngineOptions& options, Backend* backend, Clock* clock,
                                     Observer* observer);

}  // namespace sluice
