// Serves one model: its scheduler, its scheduling thread, its slots.
//
// Concurrency contract
//   * All public methods may be called from any thread; they hold the lock for bookkeeping only,
//     never during a replay or a call to a sink.
//   * The scheduling thread alone calls sinks and, through the loop
//       decide -> look up -> lay out -> start -> finish -> collect -> settle -> deliver,
//     owns the rows of the step between "decide" and "settle". A step for which the device has no
//     memory is run again in two halves.
//   * Where the backend takes steps ahead, a step is decided and started before the one before it was
//     delivered; and while that one still runs, if none of its rows returns from it (only then is what
//     runs next known) and the new step is as full as waiting could make it.
//   * While the scheduling thread hangs in a replay another one may take its place, once and for good
//     (GiveUp): that one ends all requests, and the scheduling thread ends itself should it come back.
//     Requests whose rows a lost replay may still write to live until the runner is destroyed.
//   * A request ends when its last row is done: it leaves the table under the lock, is handed to
//     the scheduling thread, and its OnDone is called without the lock.
//
// Lock order: the runner's lock, then the observer's (OnAdmitted is called under it, so that no
// request is seen done before it was seen admitted) and the journal's. The plan cache's lock is
// never taken under it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/fault_injection.h"
#include "base/mutex.h"
#include "engine/engine.h"
#include "engine/journal/decision_history.h"
#include "engine/runner/active_request.h"
#include "engine/runner/delivery.h"
#include "engine/runner/hang_detector.h"
#include "engine/runner/heartbeat.h"
#include "engine/runner/warm_up.h"
#include "engine/schedule/paged_scheduler.h"

namespace sluice {

// Unavailable: what becomes of the requests of a runner that was given up.
absl::Status HungError();

class ModelRunner {
 public:
  // Ids of its requests are first_id + 1, first_id + 2, ... Starts serving. The pointers are not
  // owned and outlive the runner; `journal` may be nullptr.
  ModelRunner(RequestId first_id, std::shared_ptr<const Model> model, PreparedModel prepared,
              const EngineOptions& options, const BackendInfo& info, Clock* clock,
              Observer* observer, SchedulerObserver* journal);
  ~ModelRunner() { Stop(); }

  const std::shared_ptr<const Model>& model() const { return model_; }
  PlanCache* plans() const { return prepared_.plans.get(); }
  const LadderLimits& limits() const { return prepared_.limits; }

  // As Engine's.
  absl::StatusOr<RequestId> Submit(Request request, std::shared_ptr<Sink> sink, MonoTime received);
  void Cancel(RequestId id);
  absl::StatusOr<Explanation> Explain(std::string_view request_id) const;

  // All but what its user adds: ladder_changes.
  ModelStats Stats() const;

  // What a review of the ladder decides from, copied.
  struct ReviewState {
    std::shared_ptr<const Ladder> ladder;
    CostModel costs;
    Traffic traffic;
  };
  ReviewState StateForReview() const;
  uint64_t Arrivals() const;  // sequences admitted since the start

  // Every plan of `ladder` is ready. From the next decision on.
  void SetLadder(std::shared_ptr<const Ladder> ladder);
  // Has an idle scheduling thread let go of plans that were withdrawn.
  void LetGoOfPlans();

  // From here on Submit refuses and the scheduler holds nothing back.
  void StopAdmission();
  // After StopAdmission: returns when every admitted request is done, or at `deadline` having told
  // the rest to end with Unavailable.
  void AwaitIdle(MonoTime deadline);
  // Ends what is left with Unavailable, and the scheduling thread. For the thread that destroys it.
  void Stop();

  // What a watchdog reads.
  const Pulse& pulse() const { return pulse_; }
  // Refuses from here on. Where `hang` is a replay that has not ended meanwhile: ends every request
  // with Unavailable.
  void GiveUp(const Hang& hang);

 private:
  // Rows of a decided batch, to be run at once.
  struct Step {
    std::span<WaitingSequence* const> sequences;
    std::span<Row* const> rows;  // the same
    BatchSize size{};
    Bucket bucket{};
  };
  // How it is run.
  struct Ran {
    const CachedPlan* plan = nullptr;
    Lookup lookup = Lookup::kHit;
    StepShape shape{};
    MonoTime started{}, start{}, end{};  // on its way; on the device

    const Bucket& bucket() const { return plan->plan().bucket(); }
  };
  // A batch from its decision to its delivery. Belongs to the scheduling thread; capacity for the
  // largest bucket.
  struct Flight {
    Flight(ExecutionSlot* of_slot, const PlanCache* cache, size_t most_sequences);

    ExecutionSlot* const slot;
    PlanCache::Reader plans;
    BatchDecision decision{};
    MonoTime decided{};  // when
    int64_t number = 0;
    std::vector<WaitingSequence*> sequences;
    std::vector<Row*> rows;  // the same
    Step step{};             // of these or of some of them: the one that runs or ran last
    Ran ran{};
    StepDelivery delivery;
    BatchTrace trace{};  // when it was settled
  };
  enum class Work { kLaunch, kFinish, kDeliver, kEnd, kRefresh, kStop };
  enum class Begun { kStarted, kFailed, kSplit };

  // The scheduling thread.
  void Run();
  Work NextWork();
  void Sleep() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndFinished();
  bool pipelined() const { return flights_.size() > 1; }
  Flight* FreeFlight();
  // These return false when the thread was given up.
  bool Launch(Flight* flight);
  bool FinishOldest();
  bool FinishAll();
  bool RunHalves(Flight* flight, const Step& step);
  bool RunStep(Flight* flight, const Step& step);

  // Looks up, lays out and starts the step; kFailed: its requests were told; kSplit: none of its halves
  // was.
  Begun Begin(Flight* flight, const Step& step);
  // Waits for its end. The device's error.
  absl::Status Await(Flight* flight);
  // What became of its rows. False: nothing yet, its halves are to be run.
  bool Conclude(Flight* flight, const absl::Status& status);
  void Deliver(Flight* flight);
  Step Part(const Step& step, size_t begin, size_t count) const;
  StepNeeds Needs(const Step& step) const;
  void FailStep(const Step& step, const absl::Status& status);
  absl::Status MeetStepFault(FaultPoint point, std::span<Row* const> rows) const;
  double Cost(const StepShape& shape) const;  // seconds, as measured
  nanoseconds Allowed(const StepShape& shape) const;
  BatchTrace TraceOf(const Flight& flight) const;
  void NoteStep(const Flight& flight);
  void NoteOutcome(const absl::Status& status, bool split);
  void DropDead(std::span<Row* const> rows, const absl::Status& replayed, MonoTime now);
  void Settle(std::span<Row* const> rows, const StepShape* timed, nanoseconds replay);

  // Tells the observer that a request ended, and its sink.
  void End(ActiveRequest* request, Reply reply);
  std::vector<std::unique_ptr<ActiveRequest>> TakeAll(const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  struct Refusal {
    Rejection reason = Rejection::kQueueFull;
    absl::Status status;  // ok: none
  };
  absl::Status Refuse(const Refusal& refusal);
  // What does not depend on what is queued.
  Refusal Examine(const Request& request, MonoTime now) const;
  // Takes the budget, if it is not refused. `needed`: as in ActiveRequest.
  Refusal Reserve(const Request& request, const RequestLoad& load, MonoTime now,
                  nanoseconds* needed);
  // Would it miss its deadline?
  bool OutOfReach(const Request& request, MonoTime now, nanoseconds* needed) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void LearnForecast(const ActiveRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Sequences in the current step, and those that wait for their next one.
  int64_t Running() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Refusal Closed() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  RequestId Admit(std::unique_ptr<ActiveRequest> active) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool MayDecide() const;
  bool Decide(MonoTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TakeRows(Flight* flight) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ExpireWaiting(MonoTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Ends the request with `status`, unless it has failed before: its waiting rows now, its running
  // ones when they settle.
  void Fail(ActiveRequest* request, const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RowDone(Row* row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Step batches that a row probably takes after its prompt, if it may have so many tokens, and how far
  // one went that ended.
  int64_t LaterSteps(int32_t most_tokens) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void LearnSteps(const Row& row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The tokens that its steps may still compute.
  void CountWork(Row* row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  const SequenceQueue& queue() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return scheduler_.scheduler().queue();
  }
  void DescribeKv(ModelStats* stats) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DescribeTraffic(MonoTime now, ModelStats* stats) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DescribeBuckets(ModelStats* stats) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::shared_ptr<const Model> model_;
  const int32_t row_multiple_;
  const WatchdogOptions watchdog_;
  Clock* const clock_;
  Observer* const observer_;
  const PreparedModel prepared_;  // its slots are used by the scheduling thread alone

  mutable Mutex mu_;
  CondVar wake_;  // the scheduling thread has something to look at
  CondVar idle_;  // nothing is admitted and nothing is being ended
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  bool hung_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  RequestId last_id_ ABSL_GUARDED_BY(mu_);
  uint64_t last_ticket_ ABSL_GUARDED_BY(mu_) = 0;
  AdmissionBudget budget_ ABSL_GUARDED_BY(mu_);
  PagedScheduler scheduler_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<RequestId, std::unique_ptr<ActiveRequest>> requests_ ABSL_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<ActiveRequest>> ended_ ABSL_GUARDED_BY(mu_);  // OnDone is due
  bool ending_ ABSL_GUARDED_BY(mu_) = false;      // the scheduling thread calls OnDone
  int64_t work_tokens_ ABSL_GUARDED_BY(mu_) = 0;  // that all admitted rows may still compute
  ForecastError forecast_error_ ABSL_GUARDED_BY(mu_);
  // Of the steps that max_tokens allows, those that rows take; a decayed mean.
  double generated_share_ ABSL_GUARDED_BY(mu_) = 1;
  // Of rows that generate: steps after the prompt, and tokens of it that were computed; decayed means.
  double mean_steps_ ABSL_GUARDED_BY(mu_) = 0, mean_prompt_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t running_requests_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t stepping_sequences_ ABSL_GUARDED_BY(mu_) = 0;  // in the current steps
  int64_t steps_ ABSL_GUARDED_BY(mu_) = 0;               // that ended

  // Whose rows are in a replay that was given up.
  std::vector<std::unique_ptr<ActiveRequest>> lost_ ABSL_GUARDED_BY(mu_);

  DecisionHistory history_;
  Pulse pulse_;

  // Of the scheduling thread.
  std::vector<Flight> flights_;     // one for each slot
  Flight* decided_ = nullptr;       // to be launched
  std::vector<Flight*> under_way_;  // started, the oldest first
  Flight* settled_ = nullptr;       // to be delivered
  RecentWaits waits_;
  MonoTime wait_until_{};     // when to decide again
  MonoTime device_free_{};    // since when, as far as is known
  int64_t last_batch_ = 0;    // number
  int64_t failed_steps_ = 0;  // in a row
  std::vector<std::unique_ptr<ActiveRequest>> finished_;

  std::thread thread_;  // last: starts when all else is built
};

}  // namespace sluice
