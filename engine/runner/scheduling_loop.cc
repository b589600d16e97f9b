// What the scheduling thread of a ModelRunner does next.
#include <algorithm>
#include <utility>

#include "engine/runner/model_runner.h"

namespace sluice {
namespace {

// It ends with the step that it is in, whatever that draws.
bool EndsNow(const Row* row) { return !row->generates && row->later_tokens == 0; }

}  // namespace

void ModelRunner::Run() {
  pulse_.Busy();
  while (true) {
    switch (NextWork()) {
      case Work::kLaunch:
        if (!Launch(std::exchange(decided_, nullptr))) return;
        break;
      case Work::kFinish:
        if (!FinishOldest()) return;
        break;
      case Work::kDeliver:
        Deliver(std::exchange(settled_, nullptr));
        break;
      case Work::kEnd:
        EndFinished();
        break;
      case Work::kRefresh:
        for (Flight& flight : flights_) flight.plans.Refresh();
        break;
      case Work::kStop:
        return;
    }
  }
}

// Waits until there is something to do. Results are handed out first, so that none waits for a batch,
// but for a device that is idle and could work meanwhile.
ModelRunner::Work ModelRunner::NextWork() {
  MutexLock lock(&mu_);
  while (true) {
    const MonoTime now = clock_->Now();
    ExpireWaiting(now);
    const bool told = settled_ == nullptr && ended_.empty();
    const bool idle = pipelined() && under_way_.empty();
    if ((told || idle) && MayDecide() && Decide(now)) return Work::kLaunch;
    if (settled_ != nullptr) return Work::kDeliver;
    if (!ended_.empty()) {
      finished_.swap(ended_);
      ending_ = true;
      return Work::kEnd;
    }
    if (!under_way_.empty()) return Work::kFinish;
    const bool stale = std::any_of(flights_.begin(), flights_.end(),
                                   [](const Flight& flight) { return flight.plans.stale(); });
    if (stale) return Work::kRefresh;
    if (stopping_) {
      pulse_.Idle();
      return Work::kStop;
    }
    Sleep();
  }
}

void ModelRunner::Sleep() {
  pulse_.Idle();
  clock_->WaitUntil(&wake_, &mu_, std::min(wait_until_, queue().EarliestDeadline()));
  pulse_.Busy();
}

void ModelRunner::ExpireWaiting(MonoTime now) {
  while (WaitingSequence* expired = queue().Expired(now)) {
    Fail(static_cast<Row*>(expired)->owner,
         absl::DeadlineExceededError("the deadline passed while the request waited"));
  }
}

ModelRunner::Flight* ModelRunner::FreeFlight() {
  for (Flight& flight : flights_) {
    const bool flies = std::find(under_way_.begin(), under_way_.end(), &flight) != under_way_.end();
    if (!flies && &flight != settled_) return &flight;
  }
  return nullptr;
}

// Is there a flight left, and nobody who could be in its batch under way?
bool ModelRunner::MayDecide() const {
  if (under_way_.size() + (settled_ == nullptr ? 0 : 1) == flights_.size()) return false;
  return std::all_of(under_way_.begin(), under_way_.end(), [](const Flight* flight) {
    return std::all_of(flight->step.rows.begin(), flight->step.rows.end(), EndsNow);
  });
}

bool ModelRunner::Decide(MonoTime now) {
  wait_until_ = MonoTime::max();
  if (queue().empty()) return false;
  Flight* const flight = FreeFlight();
  flight->decided = now;
  flight->decision = scheduler_.Decide(now, draining_, &flight->sequences, !under_way_.empty());
  const BatchDecision& decision = flight->decision;
  if (decision.launch) {
    TakeRows(flight);
    decided_ = flight;
  } else if (under_way_.empty()) {
    wait_until_ = decision.wait_until;
    waits_.Add({.at = now,
                .until = decision.wait_until,
                .reason = decision.wait_reason,
                .waiting = decision.size});
  }
  return decision.launch;
}

// Tickets of a request's rows follow each other, so that in their order its rows are neighbours.
void ModelRunner::TakeRows(Flight* flight) {
  std::vector<WaitingSequence*>& sequences = flight->sequences;
  std::sort(
      sequences.begin(), sequences.end(),
      [](const WaitingSequence* a, const WaitingSequence* b) { return a->ticket < b->ticket; });
  flight->rows.clear();
  for (WaitingSequence* sequence : sequences) {
    Row* const row = static_cast<Row*>(sequence);
    row->state = Row::State::kRunning;
    flight->rows.push_back(row);
    if (!std::exchange(row->owner->began, true)) ++running_requests_;
  }
  stepping_sequences_ += static_cast<int64_t>(flight->rows.size());
}

}  // namespace sluice
