// The admitted requests of a model, from Submit to the end of their last row.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "engine/runner/requests/active_request.h"
#include "engine/schedule/admission_control.h"
#include "engine/schedule/paged_scheduler.h"

namespace sluice {

// Owns admitted requests until they have ended and are taken, and decides when their rows change
// state (engine/schedule/sequence.h). A request ends when its last row is done. A failed request
// keeps its first error: its queued and held rows are done at once, the other rows when their steps
// end. If candidates of a request are still being scored, it ends after that. Every admitted
// request is taken exactly once, by TakeEnded or TakeAll.
//
// If the rows of a request share a prefix, the first row computes it. The other rows wait until its
// pages are published, and then reuse them.
//
// A request whose adapter is not in memory is admitted and awaits the adapter. It is queued once
// the adapter is loaded.
//
// Not thread-safe. The runner's lock guards the table, the scheduler and the admission control
// together.
class RequestTable {
 public:
  using Requests = std::vector<std::unique_ptr<ActiveRequest>>;

  // Ids are first_id + 1, first_id + 2, ... Pointers are not owned and must outlive the table.
  RequestTable(RequestId first_id, bool keeps_pages, PagedScheduler* scheduler,
               AdmissionControl* admission, Clock* clock)
      : keeps_pages_(keeps_pages),
        scheduler_(scheduler),
        admission_(admission),
        clock_(clock),
        last_id_(first_id) {}

  // Adds a request whose load was reserved, and queues its rows, or puts it into the backlog if its
  // admission was deferred. Returns its id. Ends the process if there is no memory for the queue's
  // indices.
  RequestId Admit(std::unique_ptr<ActiveRequest> request) noexcept;
  // Moves the next request of the backlog to the queue, if there is one. Requests that can no
  // longer be in time fail instead.
  void QueueNext(MonoTime now);
  // Moves requests of the backlog to the queue while that holds less than a full batch.
  void FillQueue(MonoTime now);
  // Fails the requests that wait and whose deadline is at or before `now`.
  void ExpireWaiting(MonoTime now);
  // Returns the earliest deadline of the requests that await an adapter.
  MonoTime EarliestAwaiting() const {
    return awaiting_.empty() ? MonoTime::max() : awaiting_.begin()->first;
  }
  // Queues a request that awaits its adapter, which it now has.
  void AdapterReady(ActiveRequest* request);
  // Returns nullptr if the request has ended or is unknown.
  ActiveRequest* Find(RequestId id) const;

  // Sets the request's error unless it has failed before, and ends its waiting rows.
  void Fail(ActiveRequest* request, const absl::Status& status);
  void FailAll(const absl::Status& status);

  // Record that a decision has taken rows into a step, and that a step has ended. After EndStep,
  // each of its rows must be requeued, finished or dropped (PagedScheduler::LeaveRewound).
  void BeginStep(std::span<RequestRow* const> rows);
  void EndStep() { ++steps_; }
  // Queues a row after a successful step, unless another step already carries it.
  void Requeue(RequestRow* row);
  // Ends a row after a step. `computed` is whether the step succeeded and the row was not void in
  // it. If another step carries the row, the row ends when it is finished after that step too.
  void Finish(RequestRow* row, bool computed);

  // BeginScoring keeps the row's request until EndScoring. Candidates are scored once the row's
  // prompt is computed, and do not need the row's pages.
  void BeginScoring(RequestRow* row);
  void EndScoring(RequestRow* row) { EndPart(row->owner); }

  // has_ended returns whether a request has ended and was not taken yet. TakeEnded replaces `taken`
  // by all such requests.
  bool has_ended() const { return !ended_.empty(); }
  void TakeEnded(Requests* taken);
  // Fails all requests that have not ended, and takes all. Requests with rows in a step come last.
  Requests TakeAll(const absl::Status& status);

  bool empty() const { return requests_.empty() && ended_.empty(); }
  // Requests with a row that a step has carried.
  int64_t running_requests() const { return running_requests_; }
  int64_t waiting_requests() const { return std::ssize(requests_) - running_requests_; }
  // The number of sequences in steps, plus sequences that wait for their next step with KV pages.
  int64_t running_sequences() const;
  // The number of tokens that steps may still compute.
  int64_t remaining_tokens() const { return remaining_tokens_; }
  uint64_t arrivals() const { return last_ticket_; }        // rows admitted
  int64_t steps() const { return steps_; }                  // steps that ended
  int64_t awaiting_rows() const { return awaiting_rows_; }  // of requests that await an adapter

 private:
  void Enqueue(ActiveRequest* request);
  void StopAwaiting(const ActiveRequest& request);
  void ReleaseHeld(ActiveRequest* request);
  void UpdateRemaining(RequestRow* row);
  void Done(RequestRow* row);
  void EndPart(ActiveRequest* request);

  const bool keeps_pages_;
  PagedScheduler* const scheduler_;
  AdmissionControl* const admission_;
  Clock* const clock_;
  RequestId last_id_;
  uint64_t last_ticket_ = 0;
  absl::flat_hash_map<RequestId, std::unique_ptr<ActiveRequest>> requests_;
  Requests ended_;
  // Deadlines and ids of the requests that await an adapter and are not in the backlog.
  std::set<std::pair<MonoTime, RequestId>> awaiting_;
  int64_t awaiting_rows_ = 0;
  int64_t running_requests_ = 0;
  int64_t stepping_sequences_ = 0;
  int64_t remaining_tokens_ = 0;
  int64_t steps_ = 0;
};

}  // namespace sluice
