// Runs the steps of a model on its device and delivers their results to the requests.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/fault_injection.h"
#include "engine/backend.h"
#include "engine/journal/decision_history.h"
#include "engine/observer.h"
#include "engine/options.h"
#include "engine/plans/plan_cache.h"
#include "engine/runner/requests/active_request.h"
#include "engine/runner/requests/runner_state.h"
#include "engine/runner/steps/candidate_scorer.h"
#include "engine/runner/steps/in_flight_step.h"
#include "engine/runner/steps/prepared_model.h"
#include "engine/runner/steps/step_records.h"
#include "engine/runner/steps/watchdog.h"

namespace sluice {

// Runs decided batches, one in each slot at a time:
//   look up -> lay out -> start -> await -> collect -> requeue or finish rows -> deliver.
// If the device has no memory for a step, or no plan fits it, the step runs in parts, once the
// earlier steps have ended. If the backend runs steps ahead, there are two slots: a step may be
// started before the previous step is delivered, and while it still runs. If only the drawn token
// of a row is unknown, its next step is started with a token that only the device has. If the row
// turns out to have ended, it stays in the step that was started ahead, and its result there is
// dropped. A step with drafted tokens begins once the results of the previous step are known, and
// no step is started ahead of its results.
//
// Used only by the scheduling thread, without the runner's lock unless noted otherwise. It owns the
// rows of a batch from Take until they are requeued or finished. Functions that return bool return
// false if the heartbeat was abandoned during the call: the thread must then touch nothing and
// return.
class StepPipeline {
 public:
  // Nothing is owned; all pointers outlive the pipeline.
  StepPipeline(const Model* model, const PreparedModel* prepared, const WatchdogOptions& watchdog,
               Clock* clock, Observer* observer, const RecentWaits* waits, RunnerState* state,
               Heartbeat* heartbeat);

  // Returns whether a step may be decided now: a slot is free, and for each row of a step in
  // progress it is known whether and how the row continues.
  bool MayDecide(MonoTime now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mu);
  // Decides a step and takes its rows, in the order of arrival. If waiting is better or nothing is
  // queued, returns nullptr and sets `decision`. Requires MayDecide.
  InFlightStep* Decide(MonoTime now, BatchDecision* decision)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mu);

  bool Launch(InFlightStep* step);
  // Waits for the oldest step in progress. Requires that there is one.
  bool FinishOldest();
  // Sends the results of the finished step. Requires that there is one.
  void DeliverFinished();

  bool runs_ahead() const { return steps_.size() > 1; }
  bool has_step_under_way() const { return !under_way_.empty(); }
  bool has_undelivered() const { return finished_ != nullptr; }
  // Whether a draft model may work at the beginning of Launch.
  bool has_draft_model() const { return prepared_.draft != nullptr; }

  // Scores candidates between steps.
  CandidateScorer& scorer() { return scorer_; }

  // Returns when Trim is due; MonoTime::max() if nothing has run since all memory was freed.
  MonoTime trim_at() const { return trim_at_; }
  // Frees memory that no step has used since the previous call, of activations and of the slots'
  // buffers. Requires that no step is in progress.
  void Trim();

  // HasStalePlans returns whether the pipeline still holds withdrawn plans; ReleaseStalePlans
  // releases them. Both require that no step is in progress.
  bool HasStalePlans() const;
  void ReleaseStalePlans();

 private:
  enum class StartResult { kStarted, kFailed, kSplit };
  // Whether a row ends with its step in progress, as far as this is known.
  enum class Next { kEnds, kContinues, kUnknown };

  Next NextOf(const RequestRow& row, MonoTime now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mu);
  void ReturnAhead(const InFlightStep& step, MonoTime now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mu);
  void Recall(const InFlightStep& step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mu);
  InFlightStep* FreeStep();
  void Take(InFlightStep* step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mu);

  bool DraftTokens(InFlightStep* step);
  bool EncodeLabels(InFlightStep* step, absl::Status* status);
  void Rewind(const StepRows& rows);
  StepRows DropVoid(InFlightStep* step);
  void LeaveVoid(RequestRow* row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mu);
  bool FinishAll();
  bool RunHalves(InFlightStep* step, const StepRows& rows);
  bool RunPart(InFlightStep* step, const StepRows& rows, size_t begin, size_t count);
  bool RunAlone(InFlightStep* step, const StepRows& rows);
  StartResult Start(InFlightStep* step, const StepRows& rows);
  absl::Status Await(InFlightStep* step);
  bool Conclude(InFlightStep* step, const absl::Status& status);
  void Deliver(InFlightStep* step);

  // Returns the current ladder's bucket for a batch, or nullopt if there is none.
  std::optional<Bucket> BucketOf(const BatchSize& size) const;
  double EstimatedSeconds(const StepShape& shape) const;
  nanoseconds AllowedTime(double estimated_seconds) const;
  absl::Status InjectStepFault(FaultPoint point, std::span<RequestRow* const> rows) const;
  void FailStep(InFlightStep* step, const absl::Status& status);
  void FailExpiredRows(InFlightStep* step, const absl::Status& status, MonoTime now);
  void RequeueOrFinishRows(const InFlightStep& step, bool succeeded);

  const Model* const model_;
  const PreparedModel& prepared_;
  const WatchdogOptions watchdog_;
  Clock* const clock_;
  Observer* const observer_;
  RunnerState* const state_;
  Heartbeat* const heartbeat_;
  CandidateScorer scorer_;
  StepRecords records_;

  std::vector<InFlightStep> steps_;       // one per slot
  std::vector<InFlightStep*> under_way_;  // started, the oldest first
  InFlightStep* finished_ = nullptr;      // to be delivered
  InFlightStep* held_ = nullptr;          // runs in parts, once the steps under way have ended
  MonoTime device_free_{};                // estimated time when the device became free
  MonoTime trim_at_ = MonoTime::max();
  int64_t last_batch_ = 0;  // the number of the latest batch
};

}  // namespace sluice
