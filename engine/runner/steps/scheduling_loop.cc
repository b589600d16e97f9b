#include "engine/runner/steps/scheduling_loop.h"

#include <algorithm>
#include <utility>

namespace sluice {

SchedulingLoop::SchedulingLoop(const Model* model, const PreparedModel* prepared,
                               const EngineOptions& options, Clock* clock, Observer* observer,
                               RunnerState* state, Heartbeat* heartbeat, DecisionHistory* history)
    : clock_(clock),
      observer_(observer),
      state_(state),
      heartbeat_(heartbeat),
      history_(history),
      pipeline_(model, prepared, options.watchdog, clock, observer, &waits_, state, heartbeat),
      thread_([this] { Run(); }) {}

void SchedulingLoop::Stop() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(&state_->mu);
    state_->stopping = true;
    state_->wake.Signal();
  }
  thread_.join();
}

void SchedulingLoop::Run() {
  heartbeat_->Busy();
  while (true) {
    switch (NextWork()) {
      case NextAction::kLaunch:
        if (!pipeline_.Launch(std::exchange(decided_, nullptr))) return;
        break;
      case NextAction::kFinish:
        if (!pipeline_.FinishOldest()) return;
        break;
      case NextAction::kDeliver:
        pipeline_.DeliverFinished();
        break;
      case NextAction::kEnd:
        EndFinished();
        break;
      case NextAction::kScore:
        pipeline_.scorer().ScoreSlice();
        break;
      case NextAction::kReleasePlans:
        pipeline_.ReleaseStalePlans();
        break;
      case NextAction::kTrim:
        pipeline_.Trim();
        break;
      case NextAction::kStop:
        return;
    }
  }
}

SchedulingLoop::NextAction SchedulingLoop::NextWork() {
  MutexLock lock(&state_->mu);
  while (true) {
    const MonoTime now = clock_->Now();
    state_->requests.ExpireWaiting(now);
    const bool all_delivered = !pipeline_.has_undelivered() && !state_->requests.has_ended();
    // A draft model works before its step starts, so results are delivered first.
    const bool device_idle =
        pipeline_.runs_ahead() && !pipeline_.has_step_under_way() && !pipeline_.has_draft_model();
    const bool under_way = pipeline_.has_step_under_way();
    if (!under_way && pipeline_.trim_at() <= now) return NextAction::kTrim;
    // If the host computes steps, a step under way has only been laid out.
    const bool score =
        pipeline_.scorer().IsDue(under_way) && (pipeline_.runs_ahead() || !under_way);
    const bool may_launch = device_idle || (all_delivered && (pipeline_.runs_ahead() || !score));
    if (may_launch && pipeline_.MayDecide(now) && Decide(now)) return NextAction::kLaunch;
    if (pipeline_.has_undelivered()) return NextAction::kDeliver;
    if (state_->requests.has_ended()) {
      state_->requests.TakeEnded(&finished_);
      state_->ending = true;
      return NextAction::kEnd;
    }
    if (score) return NextAction::kScore;
    if (pipeline_.has_step_under_way()) return NextAction::kFinish;
    if (!pipeline_.scorer().empty()) return NextAction::kScore;
    if (pipeline_.HasStalePlans()) return NextAction::kReleasePlans;
    if (state_->stopping) {
      heartbeat_->Idle();
      return NextAction::kStop;
    }
    Sleep();
  }
}

void SchedulingLoop::Sleep() {
  heartbeat_->Idle();
  clock_->WaitUntil(&state_->wake, &state_->mu,
                    std::min({wait_until_, state_->queue().EarliestDeadline(),
                              state_->admission.backlog().EarliestDeadline(),
                              state_->requests.EarliestAwaiting(), pipeline_.trim_at()}));
  heartbeat_->Busy();
}

bool SchedulingLoop::Decide(MonoTime now) {
  wait_until_ = MonoTime::max();
  state_->requests.FillQueue(now);
  BatchDecision decision;
  decided_ = pipeline_.Decide(now, &decision);
  if (!decision.launch && !state_->queue().empty() && !pipeline_.has_step_under_way()) {
    wait_until_ = decision.wait_until;
    waits_.Add({.at = now,
                .until = decision.wait_until,
                .reason = decision.wait_reason,
                .waiting = decision.size});
  }
  return decision.launch;
}

void SchedulingLoop::EndFinished() {
  for (std::unique_ptr<ActiveRequest>& request : finished_) {
    request->trace.ended_together = std::ssize(finished_);
    EndRequest(request.get());
  }
  finished_.clear();
  MutexLock lock(&state_->mu);
  state_->ending = false;
  if (state_->requests.empty()) state_->idle.SignalAll();
}

void SchedulingLoop::EndRequest(ActiveRequest* request) {
  Reply reply;
  // An abandoned step may still write to the reply of a request that failed.
  if (request->status.ok()) {
    request->CompleteReply();
    reply = std::move(request->reply);
  }
  request->trace.done = clock_->Now();
  for (const RequestRow& row : request->rows) {
    request->trace.reused_tokens += row.reused_tokens;
    request->trace.preemptions += row.preemptions;
  }
  if (request->adapter != nullptr) {
    request->adapter->CountRequest(request->trace.prompt_tokens + request->trace.generated_tokens);
  }
  observer_->OnRequestDone(request->request, request->status, request->trace);
  if (request->trace.steps == 0) request->history.AddWaits(waits_, request->trace.queued);
  if (request->status.ok() && !reply.xsa_cos_sim.empty()) {
    observer_->OnDiagnostics(*request->request.spec->model, reply);
  }
  history_->Add(request->request, request->status, request->trace, std::move(request->history));
  request->sink->OnDone(request->status, std::move(reply), request->trace);
}

}  // namespace sluice
