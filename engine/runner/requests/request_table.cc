#include "engine/runner/requests/request_table.h"

#include <algorithm>
#include <utility>

namespace sluice {

RequestId RequestTable::Admit(std::unique_ptr<ActiveRequest> request) noexcept {
  request->id = ++last_id_;
  for (RequestRow& row : request->rows) {
    row.ticket = ++last_ticket_;
    row.expected_steps = 1 + admission_->LaterSteps(row.generation.limit);
    UpdateRemaining(&row);
  }
  const RequestId id = request->id;
  ActiveRequest* const admitted = requests_.emplace(id, std::move(request)).first->second.get();
  if (admitted->admission.deferred) {
    admission_->Defer(id, ApplicantOf(admitted->request), scheduler_->scheduler(),
                      admitted->admission, admitted->trace.queued);
  } else {
    Enqueue(admitted);
  }
  return id;
}

void RequestTable::Enqueue(ActiveRequest* request) {
  if (request->awaits_adapter) {
    awaiting_.emplace(request->request.deadline, request->id);
    awaiting_rows_ += std::ssize(request->rows);
    return;
  }
  if (NeedsNoStep(request->request)) {
    for (RequestRow& row : request->rows) {
      scheduler_->Remove(&row);
      Done(&row);
    }
    return;
  }
  // An adapter that was awaited decides whether rows share pages.
  if (scheduler_->reuses_prefixes() && request->rows.size() > 1) {
    request->held_until = request->SharedTokens(scheduler_->kv().page_tokens());
  }
  for (RequestRow& row : request->rows) {
    row.kv.shared = request->held_until;
    if (request->held_until > 0 && row.index > 0) continue;
    scheduler_->Arrive(&row);
    UpdateRemaining(&row);
  }
}

void RequestTable::StopAwaiting(const ActiveRequest& request) {
  if (awaiting_.erase({request.request.deadline, request.id}) == 0) return;
  awaiting_rows_ -= std::ssize(request.rows);
}

void RequestTable::AdapterReady(ActiveRequest* request) {
  request->awaits_adapter = false;
  if (!awaiting_.contains({request->request.deadline, request->id})) return;  // in the backlog
  StopAwaiting(*request);
  Enqueue(request);
}

void RequestTable::QueueNext(MonoTime now) {
  while (!admission_->backlog().empty()) {
    const AdmissionControl::Taken next =
        admission_->TakeNext(scheduler_->scheduler(), running_sequences(), now);
    ActiveRequest* const request = Find(next.id);
    if (next.reachable) {
      for (RequestRow& row : request->rows) row.queued = now;
      return Enqueue(request);
    }
    Fail(request, UnreachableError());
  }
}

void RequestTable::FillQueue(MonoTime now) {
  while (admission_->HasRoomForNext(scheduler_->scheduler(), running_sequences(), now)) {
    QueueNext(now);
  }
}

void RequestTable::ExpireWaiting(MonoTime now) {
  const auto expire = [this](ActiveRequest* request) {
    Fail(request, absl::DeadlineExceededError("the deadline passed while the request waited"));
  };
  while (WaitingSequence* expired = scheduler_->scheduler().queue().Expired(now)) {
    expire(RowOf(expired)->owner);
  }
  while (EarliestAwaiting() <= now) expire(Find(awaiting_.begin()->second));
  const Backlog& backlog = admission_->backlog();
  while (backlog.EarliestDeadline() <= now) expire(Find(backlog.Earliest().id));
}

void RequestTable::ReleaseHeld(ActiveRequest* request) {
  request->held_until = 0;
  for (RequestRow& row : request->rows) {
    if (row.state() != SequenceState::kHeld) continue;
    scheduler_->Arrive(&row);
    UpdateRemaining(&row);
  }
}

ActiveRequest* RequestTable::Find(RequestId id) const {
  const auto it = requests_.find(id);
  return it == requests_.end() ? nullptr : it->second.get();
}

void RequestTable::Fail(ActiveRequest* request, const absl::Status& status) {
  if (!request->status.ok()) return;
  request->status = status;
  admission_->Leave(request->id);
  StopAwaiting(*request);
  for (RequestRow& row : request->rows) {
    if (row.state() != SequenceState::kQueued && row.state() != SequenceState::kHeld) continue;
    scheduler_->Remove(&row);
    Done(&row);
  }
}

void RequestTable::FailAll(const absl::Status& status) {
  std::vector<ActiveRequest*> all;
  for (const auto& [id, request] : requests_) all.push_back(request.get());
  for (ActiveRequest* request : all) Fail(request, status);
}

void RequestTable::BeginStep(std::span<RequestRow* const> rows) {
  admission_->Reconsider();
  for (RequestRow* row : rows) {
    if (row->state() == SequenceState::kRunning) ++stepping_sequences_;
    if (!std::exchange(row->owner->began, true)) ++running_requests_;
  }
}

void RequestTable::Requeue(RequestRow* row) {
  scheduler_->Computed(row);
  ActiveRequest* const request = row->owner;
  const int32_t published = scheduler_->kv().Published(row->kv);
  if (request->held_until > 0 && published >= request->held_until) ReleaseHeld(request);
  scheduler_->Return(row);
  if (row->state() == SequenceState::kQueued) --stepping_sequences_;
  UpdateRemaining(row);
}

void RequestTable::Finish(RequestRow* row, bool computed) {
  if (computed) {
    scheduler_->Computed(row);
    if (row->generates) {
      admission_->Learn(AdmissionControl::GeneratedRow{
          .tokens = row->generation.count,
          .most_tokens = row->generation.limit,
          .computed_prompt = row->prompt.length - row->reused_tokens,
          .context = row->reach.ContextOf(row->prompt.length + row->generation.count / 2, 1)});
    }
  }
  scheduler_->End(row);
  if (row->state() == SequenceState::kEnding) return;
  --stepping_sequences_;
  if (row->owner->held_until > 0) ReleaseHeld(row->owner);
  Done(row);
}

void RequestTable::Done(RequestRow* row) {
  remaining_tokens_ -= row->account.remaining_tokens;
  EndPart(row->owner);
}

void RequestTable::BeginScoring(RequestRow* row) {
  row->account.scoring = true;
  ++row->owner->parts_left;
}

void RequestTable::EndPart(ActiveRequest* request) {
  if (--request->parts_left > 0) return;
  if (request->began) --running_requests_;
  admission_->Return(request->load);
  if (request->request.deadline != MonoTime::max()) {
    admission_->Learn(AdmissionControl::Outcome{.queued = request->trace.queued,
                                                .ended = clock_->Now(),
                                                .deadline = request->request.deadline,
                                                .admission = request->admission,
                                                .status = request->status});
  }
  const auto it = requests_.find(request->id);
  ended_.push_back(std::move(it->second));
  requests_.erase(it);
}

// One token in each step after the next one, or the whole history again if no pages are kept.
void RequestTable::UpdateRemaining(RequestRow* row) {
  remaining_tokens_ -= row->account.remaining_tokens;
  const int64_t steps = std::max(row->generation.limit - row->generation.count, 1);
  const int64_t length = row->length();
  row->account.remaining_tokens = keeps_pages_ ? length - row->first_position + steps - 1
                                               : steps * length + steps * (steps - 1) / 2;
  remaining_tokens_ += row->account.remaining_tokens;
}

void RequestTable::TakeEnded(Requests* taken) {
  taken->clear();
  taken->swap(ended_);
}

RequestTable::Requests RequestTable::TakeAll(const absl::Status& status) {
  FailAll(status);
  Requests taken;
  TakeEnded(&taken);
  for (auto& [id, request] : requests_) {
    admission_->Return(request->load);
    taken.push_back(std::move(request));
  }
  requests_.clear();
  running_requests_ = 0;
  stepping_sequences_ = 0;
  remaining_tokens_ = 0;
  return taken;
}

int64_t RequestTable::running_sequences() const {
  return stepping_sequences_ + scheduler_->scheduler().queue().running();
}

}  // namespace sluice
