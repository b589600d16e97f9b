// The state of a runner that is guarded by its lock.
#pragma once

#include "base/mutex.h"
#include "engine/runner/requests/request_table.h"
#include "engine/schedule/admission_control.h"
#include "engine/schedule/paged_scheduler.h"

namespace sluice {

// Shared by the threads that submit, the scheduling thread, reviews and the watchdog. The lock is
// held for bookkeeping only, never during a step or a call to a sink.
//
// Lock order: this lock, then the observer's and the journal's. OnAdmitted is called under this
// lock, so that a request is not reported as done before it is reported as admitted. The plan
// cache's lock is never taken under it.
struct RunnerState {
  RunnerState(AdmissionControl control, RequestId first_id, bool keeps_pages,
              const BatchOptions& batch, const PagedScheduler::Options& kv, nanoseconds half_life,
              std::shared_ptr<const Ladder> ladder, CostModel costs, SchedulerObserver* journal,
              Clock* clock)
      : scheduler(batch, kv, half_life, std::move(ladder), std::move(costs), journal),
        admission(control),
        requests(first_id, keeps_pages, &scheduler, &admission, clock) {}

  const SequenceQueue& queue() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    return scheduler.scheduler().queue();
  }

  mutable Mutex mu;
  CondVar wake;  // signalled when the scheduling thread may have something to do
  CondVar idle;  // signalled when all requests have ended and their sinks were called
  PagedScheduler scheduler ABSL_GUARDED_BY(mu);
  AdmissionControl admission ABSL_GUARDED_BY(mu);
  RequestTable requests ABSL_GUARDED_BY(mu);
  // Whether sinks of taken requests still have to be called.
  bool ending ABSL_GUARDED_BY(mu) = false;
  bool stopping ABSL_GUARDED_BY(mu) = false;  // whether the scheduling thread must return
};

}  // namespace sluice
