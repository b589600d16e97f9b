// The scheduling thread of a model.
#pragma once

#include <memory>
#include <thread>

#include "base/clock.h"
#include "engine/journal/decision_history.h"
#include "engine/observer.h"
#include "engine/options.h"
#include "engine/runner/requests/active_request.h"
#include "engine/runner/requests/request_table.h"
#include "engine/runner/requests/runner_state.h"
#include "engine/runner/steps/prepared_model.h"
#include "engine/runner/steps/step_pipeline.h"
#include "engine/runner/steps/watchdog.h"

namespace sluice {

// Repeatedly chooses the next action: decide and launch a batch, finish a step, deliver its
// results, end requests, score candidates, release withdrawn plans, free unused memory, or wait
// until one of these is due. Only this thread calls sinks, except in EndRequest below.
class SchedulingLoop {
 public:
  // Starts the thread. The objects that the pointers refer to are not owned and outlive the loop.
  SchedulingLoop(const Model* model, const PreparedModel* prepared, const EngineOptions& options,
                 Clock* clock, Observer* observer, RunnerState* state, Heartbeat* heartbeat,
                 DecisionHistory* history);
  ~SchedulingLoop() { Stop(); }

  // Ends the thread. Requires that all requests have ended, or that the thread was abandoned.
  void Stop();

  // Reports the end of a request to the observer, the history and the request's sink. The sink of a
  // request that failed receives an empty reply. Called by the scheduling thread, or by the thread
  // that has abandoned it.
  void EndRequest(ActiveRequest* request);

 private:
  enum class NextAction { kLaunch, kFinish, kDeliver, kEnd, kScore, kReleasePlans, kTrim, kStop };

  void Run();
  // Waits until there is something to do. Results of a finished step are delivered before the next
  // batch is launched, unless the device is idle and could work during the delivery. Candidates are
  // scored in their turn; if the device is not the host, also during a step.
  NextAction NextWork();
  void Sleep() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mu);
  void EndFinished();
  bool Decide(MonoTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mu);

  Clock* const clock_;
  Observer* const observer_;
  RunnerState* const state_;
  Heartbeat* const heartbeat_;
  DecisionHistory* const history_;

  // Used by the scheduling thread.
  RecentWaits waits_;
  StepPipeline pipeline_;
  InFlightStep* decided_ = nullptr;  // the step to launch
  RequestTable::Requests finished_;  // ended requests whose sinks have not been called
  MonoTime wait_until_{};            // when to decide again

  std::thread thread_;  // last: starts when everything else is built
};

}  // namespace sluice
