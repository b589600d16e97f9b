// A served model: its runner, the reviews of its ladder, its journal and its watchdog.
#pragma once

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "engine/journal/journal.h"
#include "engine/runner/models/ladder_reviewer.h"
#include "engine/runner/models/later_plans.h"
#include "engine/runner/models/model_runner.h"
#include "engine/runner/models/warm_up.h"
#include "engine/runner/steps/watchdog.h"

namespace sluice {

class ServedModel {
 public:
  // Warms the model up and starts serving; see WarmUp, ModelRunner and Engine::Serve. Returns
  // Unavailable if the journal cannot be opened.
  static absl::StatusOr<std::unique_ptr<ServedModel>> Create(
      RequestId first_id, std::shared_ptr<const Model> model, const EngineOptions& options,
      Backend* backend, Clock* clock, Observer* observer, const WarmUpRoom& room);
  // Stops the scheduling thread before the reviews, because reviews use the runner until they end.
  // Reviews wait for later plans, so the later plans are stopped first.
  ~ServedModel() {
    runner_.Stop();
    later_plans_.Stop();
  }

  const std::shared_ptr<const Model>& model() const { return runner_.model(); }
  ModelRunner& runner() { return runner_; }
  const ModelRunner& runner() const { return runner_; }
  LadderReviewer& reviewer() { return reviewer_; }

  ModelStats Stats() const;

  // A model writes its ladder file and its journal from StartWriting until it hands them over or is
  // destroyed. Only one of the models with these files writes at a time. Lines for the journal that
  // come before StartWriting are kept for it; lines after HandOverJournal are dropped.
  void StartWriting();
  void HandOverLadder() { reviewer_.HandOver(); }
  void HandOverJournal();

 private:
  ServedModel(RequestId first_id, std::shared_ptr<const Model> model, PreparedModel prepared,
              std::optional<LadderFile> file, LadderChoice kept, std::unique_ptr<Journal> journal,
              const EngineOptions& options, const BackendInfo& info, Clock* clock,
              Observer* observer);

  // Destroyed in reverse order: users before the objects that they use.
  const std::unique_ptr<Journal> journal_;  // may be nullptr
  ModelRunner runner_;
  LaterPlans later_plans_;
  LadderReviewer reviewer_;
  std::optional<Watchdog> watchdog_;  // also watches while the runner stops
};

}  // namespace sluice
