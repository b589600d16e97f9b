// Serves one model: its admitted requests, their scheduling and the scheduling thread.
//
//   ModelRunner runner(first_id, model, *WarmUp(...), options, backend->info(), clock, observer,
//                      /*journal=*/nullptr);
//   const absl::StatusOr<RequestId> id = runner.Submit(std::move(request), sink, received);
//   ...
//   runner.Stop();
//
// Concurrency contract
//   * All public methods may be called from any thread. They hold the lock of RunnerState for
//     bookkeeping only, never during a step or a call to a sink.
//   * Only the scheduling thread (SchedulingLoop) decides, runs steps (StepPipeline) and calls
//     sinks.
//   * If the scheduling thread hangs in a step, another thread may permanently replace it (GiveUp).
//     That thread ends all requests. If the scheduling thread ever returns from the step, it ends
//     itself. Requests whose rows the lost step may still write to live until the runner is
//     destroyed.
//   * A request ends when its last row is done: it leaves the table (RequestTable) under the lock,
//     and its OnDone is called without the lock.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "engine/journal/decision_history.h"
#include "engine/runner/requests/adapter_loader.h"
#include "engine/runner/requests/caller_numbers.h"
#include "engine/runner/requests/runner_state.h"
#include "engine/runner/steps/prepared_model.h"
#include "engine/runner/steps/scheduling_loop.h"
#include "engine/runner/steps/watchdog.h"

namespace sluice {

class ModelRunner {
 public:
  // Starts serving. The ids of its requests are first_id + 1, first_id + 2, ... Pointers are not
  // owned and must outlive the runner; `journal` may be nullptr.
  ModelRunner(RequestId first_id, std::shared_ptr<const Model> model, PreparedModel prepared,
              const EngineOptions& options, const BackendInfo& info, Clock* clock,
              Observer* observer, SchedulerObserver* journal);
  ~ModelRunner() { Stop(); }

  const std::shared_ptr<const Model>& model() const { return model_; }
  PlanCache* plans() const { return prepared_.plans.get(); }
  AdapterTable& adapters() const { return *prepared_.adapters; }
  std::shared_ptr<const ExecutableModel> executable() const { return prepared_.executable; }
  const LadderLimits& limits() const { return prepared_.limits; }

  // See Engine.
  absl::StatusOr<RequestId> Submit(Request request, std::shared_ptr<Sink> sink, MonoTime received);
  absl::Status StandingRefusal(std::string_view owner, int priority, MonoTime received,
                               MonoTime deadline);
  void Cancel(RequestId id);
  absl::StatusOr<Explanation> Explain(std::string_view request_id) const;
  // All statistics except ladder_changes.
  ModelStats Stats() const;

  // A copy of the inputs of a review of the ladder.
  struct ReviewState {
    std::shared_ptr<const Ladder> ladder;
    CostModel costs;
    Traffic traffic;
  };
  ReviewState StateForReview() const;
  uint64_t Arrivals() const;  // sequences admitted since the start

  // Replaces the ladder from the next decision on. Requires that every plan of `ladder` is ready.
  void SetLadder(std::shared_ptr<const Ladder> ladder);
  // Makes an idle scheduling thread release withdrawn plans.
  void ReleaseWithdrawnPlans();

  // From now on, Submit refuses every request and the scheduler does not delay batches.
  void StopAdmission();
  // Returns when every admitted request has ended. At `deadline`, marks the remaining requests to
  // end with Unavailable, and returns. Requires StopAdmission.
  void AwaitIdle(MonoTime deadline);
  // Ends the remaining requests with Unavailable, then ends the scheduling thread. Called by the
  // thread that destroys the runner.
  void Stop();

  const Heartbeat& heartbeat() const { return heartbeat_; }
  // Refuses every request from now on. If the step in `sample` is still running, ends every request
  // that has not ended before with Unavailable.
  void GiveUp(const Heartbeat::Sample& sample);

 private:
  // Queues a request that waited for its adapter, or fails it.
  void DeliverAdapter(RequestId id, absl::StatusOr<std::shared_ptr<const ServedAdapter>> adapter);
  // Lets the request reuse only prefixes of its adapter and, if they are private, of its caller.
  void SeparatePrefixes(ActiveRequest* active);
  absl::Status Refuse(absl::Status refusal);
  Admission Reserve(const Applicant& applicant, MonoTime now);

  const std::shared_ptr<const Model> model_;
  Clock* const clock_;
  Observer* const observer_;
  const bool private_prefixes_;
  CallerNumbers callers_;
  const PreparedModel prepared_;  // its slots are used only by the scheduling thread
  RunnerState state_;
  // Requests with rows in the abandoned step.
  RequestTable::Requests lost_ ABSL_GUARDED_BY(state_.mu);
  DecisionHistory history_;
  Heartbeat heartbeat_;
  SchedulingLoop loop_;                  // its thread starts when everything above is built
  std::optional<AdapterLoader> loader_;  // if the model takes adapters
};

// Returns the runner's statistics at `now`, without model and ladder_changes. Takes the plan
// cache's lock, then the state's.
ModelStats StatsOf(const PreparedModel& prepared, const RunnerState& state, MonoTime now);

}  // namespace sluice
