#include "engine/runner/requests/request_table.h"

#include <algorithm>
#include <utility>

namespace sluice {

RequestId RequestTable::Admit(std::unique_ptr<ActiveRequest> request) noexcept {
  request->id = ++last_id_;
  Hold(request.get());
  for (RequestRow& row : request->rows) {
    WaitingSequence& waiting = row.sequence.waiting;
    waiting.ticket = ++last_ticket_;
    waiting.expected_steps = 1 + admission_->LaterSteps(row.generation.limit);
    if (row.state == RequestRow::State::kWaiting) scheduler_->Arrive(&row.sequence);
    UpdateRemaining(&row);
  }
  const RequestId id = request->id;
  requests_.emplace(id, std::move(request));
  return id;
}

void RequestTable::Hold(ActiveRequest* request) {
  if (!scheduler_->reuses_prefixes() || request->rows.size() == 1) return;
  request->held_until = request->SharedTokens(scheduler_->kv().page_tokens());
  if (request->held_until == 0) return;
  for (RequestRow& row : request->rows) {
    row.sequence.kv.shared = request->held_until;
    if (row.index > 0) row.state = RequestRow::State::kHeld;
  }
}

void RequestTable::ReleaseHeld(ActiveRequest* request) {
  request->held_until = 0;
  for (RequestRow& row : request->rows) {
    if (row.state != RequestRow::State::kHeld) continue;
    row.state = RequestRow::State::kWaiting;
    scheduler_->Arrive(&row.sequence);
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
  for (RequestRow& row : request->rows) {
    if (row.state == RequestRow::State::kWaiting) {
      scheduler_->Remove(&row.sequence);
    } else if (row.state != RequestRow::State::kHeld) {
      continue;
    }
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
    row->state = RequestRow::State::kRunning;
    if (row->steps++ == 0) ++stepping_sequences_;
    if (!std::exchange(row->owner->began, true)) ++running_requests_;
  }
}

void RequestTable::EndStep(std::span<RequestRow* const> rows) {
  ++steps_;
  for (RequestRow* row : rows) Leave(row);
}

void RequestTable::Leave(RequestRow* row) {
  if (--row->steps == 0) --stepping_sequences_;
}

void RequestTable::Requeue(RequestRow* row) {
  scheduler_->Computed(&row->sequence);
  ActiveRequest* const request = row->owner;
  const int32_t published = scheduler_->kv().Published(row->sequence.kv);
  if (request->held_until > 0 && published >= request->held_until) ReleaseHeld(request);
  if (row->steps == 0) {
    row->state = RequestRow::State::kWaiting;
    scheduler_->Return(&row->sequence);
  }
  UpdateRemaining(row);
}

void RequestTable::Finish(RequestRow* row, bool computed) {
  const bool ended_before = row->is_void == RequestRow::Void::kEnded;
  if (computed && !ended_before) {
    scheduler_->Computed(&row->sequence);
    if (row->sequence.waiting.generates) {
      admission_->Learn(AdmissionControl::GeneratedRow{
          .tokens = row->generation.count,
          .most_tokens = row->generation.limit,
          .computed_prompt = row->prompt.length - row->sequence.reused_tokens,
          .context = row->sequence.waiting.reach.ContextOf(
              row->prompt.length + row->generation.count / 2, 1)});
    }
  }
  if (row->steps > 0) {
    row->is_void = RequestRow::Void::kEnded;
    return;
  }
  scheduler_->End(&row->sequence);
  if (row->owner->held_until > 0) ReleaseHeld(row->owner);
  Done(row);
}

void RequestTable::Done(RequestRow* row) {
  row->state = RequestRow::State::kDone;
  remaining_tokens_ -= row->remaining_tokens;
  EndPart(row->owner);
}

void RequestTable::BeginScoring(RequestRow* row) {
  row->scoring = true;
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
                                                .needed = request->needed,
                                                .status = request->status});
  }
  const auto it = requests_.find(request->id);
  ended_.push_back(std::move(it->second));
  requests_.erase(it);
}

// One token in each step after the next, or the whole history again where no pages are kept.
void RequestTable::UpdateRemaining(RequestRow* row) {
  remaining_tokens_ -= row->remaining_tokens;
  const int64_t steps = std::max(row->generation.limit - row->generation.count, 1);
  const int64_t length = row->length();
  row->remaining_tokens = keeps_pages_ ? length - row->first_position() + steps - 1
                                       : steps * length + steps * (steps - 1) / 2;
  remaining_tokens_ += row->remaining_tokens;
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
