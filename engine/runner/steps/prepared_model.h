// A model that is ready to run steps.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/backend.h"
#include "engine/ladder/ladder.h"
#include "engine/plans/ladder_file.h"
#include "engine/plans/plan_cache.h"
#include "engine/runner/requests/adapter_table.h"
#include "engine/runner/steps/draft_model.h"
#include "engine/runner/steps/execution_slot.h"
#include "engine/runner/steps/label_encoder.h"
#include "engine/schedule/cost_model.h"
#include "engine/schedule/paged_scheduler.h"

namespace sluice {

// Members are destroyed in reverse order: users before the objects that they use.
struct PreparedModel {
  std::shared_ptr<ExecutableModel> executable;
  std::unique_ptr<AdapterTable> adapters;
  BackendInfo info;  // of the backend, with the model's additions to the profile
  LadderLimits limits;
  std::shared_ptr<const Ladder> ladder;
  std::unique_ptr<PlanCache> plans;  // one for each bucket of the ladder, prepared or awaited
  int64_t evicted = 0;               // buckets excluded by memory_limit_bytes
  std::string memory_limit_effect;   // in sentences, with the cost; empty if there is none
  PagedScheduler::Options kv;
  std::vector<std::unique_ptr<ExecutionSlot>> slots;  // one for each step that may be in progress
  std::unique_ptr<DraftModel> draft;                  // nullptr if there is none
  std::unique_ptr<LabelEncoder> labels;               // nullptr if there is none
  // Restored from the ladder file, or measured in at least the smallest bucket, with two steps of
  // different shapes for each number of tokens.
  CostModel costs;
  std::optional<LadderFile> file;  // if configured
  LadderChoice ladder_kept;        // the choice in the file, which is applied
  nanoseconds duration{0};         // of WarmUp
};

}  // namespace sluice
