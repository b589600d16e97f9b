// A model that is ready to run steps.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "engine/backend.h"
#include "engine/ladder/ladder.h"
#include "engine/plans/ladder_file.h"
#include "engine/plans/plan_cache.h"
#include "engine/runner/steps/execution_slot.h"
#include "engine/schedule/cost_model.h"
#include "engine/schedule/paged_scheduler.h"

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

}  // namespace sluice
