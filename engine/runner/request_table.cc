// How requests of a ModelRunner end, and how it ends.
#include <utility>

#include "engine/runner/model_runner.h"

namespace sluice {

void ModelRunner::End(ActiveRequest* request, Reply reply) {
  request->trace.done = clock_->Now();
  for (const Row& row : request->rows) {
    request->trace.reused_tokens += row.reused_tokens;
    request->trace.preemptions += row.preemptions;
  }
  observer_->OnRequestDone(request->request, request->status, request->trace);
  if (request->trace.steps == 0) request->history.waits = waits_.Since(request->trace.queued);
  history_.Add(request->request, request->status, request->trace, std::move(request->history));
  request->sink->OnDone(request->status, std::move(reply), request->trace);
}

void ModelRunner::EndFinished() {
  for (std::unique_ptr<ActiveRequest>& request : finished_) {
    End(request.get(), std::move(request->reply));
  }
  finished_.clear();
  MutexLock lock(&mu_);
  ending_ = false;
  if (requests_.empty() && ended_.empty()) idle_.SignalAll();
}

void ModelRunner::StopAdmission() {
  MutexLock lock(&mu_);
  draining_ = true;
  wake_.Signal();
}

void ModelRunner::AwaitIdle(MonoTime deadline) {
  MutexLock lock(&mu_);
  while (!requests_.empty() || !ended_.empty() || ending_) {
    if (clock_->Now() >= deadline) break;
    clock_->WaitUntil(&idle_, &mu_, deadline);
  }
  std::vector<ActiveRequest*> left;
  for (const auto& [id, request] : requests_) left.push_back(request.get());
  for (ActiveRequest* request : left) {
    Fail(request, absl::UnavailableError("the server is shutting down"));
  }
  wake_.Signal();
}

void ModelRunner::Stop() {
  if (!thread_.joinable()) return;
  StopAdmission();
  AwaitIdle(clock_->Now());
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    wake_.Signal();
  }
  thread_.join();
}

// Every request that has not ended: those whose rows all wait, then those that have one in the step.
std::vector<std::unique_ptr<ActiveRequest>> ModelRunner::TakeAll(const absl::Status& status) {
  std::vector<ActiveRequest*> all;
  for (const auto& [id, request] : requests_) all.push_back(request.get());
  for (ActiveRequest* request : all) Fail(request, status);
  std::vector<std::unique_ptr<ActiveRequest>> taken = std::move(ended_);
  ended_.clear();
  for (auto& [id, request] : requests_) {
    budget_.Return(request->load);
    taken.push_back(std::move(request));
  }
  requests_.clear();
  running_requests_ = 0;
  stepping_sequences_ = 0;
  work_tokens_ = 0;
  return taken;
}

void ModelRunner::GiveUp(const Hang& hang) {
  {
    MutexLock lock(&mu_);
    hung_ = true;
  }
  // What else it may hang in is not ours to interrupt: its requests end with the process.
  if (hang.beat.phase != Pulse::Phase::kReplay || !pulse_.Abandon(hang.beat.serial)) return;
  std::vector<std::unique_ptr<ActiveRequest>> left;
  {
    MutexLock lock(&mu_);
    ending_ = true;
    left = TakeAll(HungError());
  }
  // The replay may still write to their replies.
  for (const std::unique_ptr<ActiveRequest>& request : left) End(request.get(), Reply());
  MutexLock lock(&mu_);
  ending_ = false;
  lost_ = std::move(left);
  idle_.SignalAll();
}

}  // namespace sluice
