// Admits requests to a model and forecasts their times. The forecasts learn from finished requests.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>

#include "absl/status/status.h"
#include "base/clock.h"
#include "engine/options.h"
#include "engine/schedule/admission.h"
#include "engine/schedule/attention_reach.h"
#include "engine/schedule/backlog.h"
#include "engine/schedule/scheduler.h"
#include "engine/schedule_values.h"

namespace sluice {

// Returns the error for requests of a model whose device hangs.
absl::Status HungError();
// Returns the error for requests that cannot end before their deadlines.
absl::Status UnreachableError();

// The properties of a request that decide on its admission.
struct Applicant {
  RequestLoad load{};
  uint32_t caller = 0;  // see WaitingSequence
  MonoTime deadline = MonoTime::max();
  int64_t rows = 1;
  int64_t prompt_tokens = 0;  // of all rows
  int32_t max_tokens = 0;     // of each row
  AttentionReach reach = {};  // of its model
};

// The decision on a request.
struct Admission {
  absl::Status refusal{};  // OK if the request is admitted
  nanoseconds needed{0};   // the forecast until its end, if it has a deadline
  // Whether it waits in the backlog (Defer) instead of the queue.
  bool deferred = false;
  // Whether a request of the backlog enters the queue in its place (TakeNext).
  bool gives_place = false;
};

// Decides only from its arguments: the request, the scheduler's state and the time. It has no
// clock, lock or thread. Not thread-safe.
//
// A request without a deadline, or with an early one, must find a queue that is short enough
// (engine.queue.max_wait). A patient request may wait for longer than that. If the queue is too
// long, it waits in the backlog until its deadline allows no more. A request of the backlog enters
// the queue in the place of a later patient request that would have been admitted, or when the
// queue holds less than one full batch. So patient requests take no room in the queue from others,
// and during an overload they get as much of the device as if they had been refused and retried
// (loadtest/results/admission_rules.md).
//
//   AdmissionControl admission(options, /*reuses_prefixes=*/true);
//   const Admission decision = admission.Reserve(applicant, scheduler, running, now);
//   SLUICE_RETURN_IF_ERROR(decision.refusal);
//   if (decision.deferred) admission.Defer(id, applicant, scheduler, decision, now);
//   ...                                // the request runs
//   admission.Return(applicant.load);  // it has ended
class AdmissionControl {
 public:
  // A request that has ended.
  struct Outcome {
    MonoTime queued{};
    MonoTime ended{};
    MonoTime deadline = MonoTime::max();
    Admission admission{};  // the decision of Reserve
    absl::Status status;
  };
  // A finished row that generated tokens.
  struct GeneratedRow {
    int64_t tokens = 0;           // generated tokens
    int64_t most_tokens = 0;      // the most that it was allowed, > 1
    int64_t computed_prompt = 0;  // prompt tokens that were not found in the cache
    int64_t context = 0;          // positions attended to in its middle step
  };

  struct Options {
    QueueOptions queue{};
    nanoseconds priority_step{0};
    // Whether only the last token of each prompt is certain to be computed.
    bool reuses_prefixes = false;
    bool defers = true;  // whether patient requests may wait in the backlog; for comparisons
  };
  explicit AdmissionControl(const Options& options)
      : options_(options),
        max_wait_(std::chrono::microseconds(options.queue.max_wait_us)),
        budget_(options.queue),
        backlog_(options.priority_step) {}

  // Drain and Hang make every later request be refused, because the model drains or its device
  // hangs.
  void Drain() { draining_ = true; }
  void Hang() { hung_ = true; }
  bool draining() const { return draining_; }

  // Returns a refusal if the model drains or hangs.
  absl::Status Closed() const;
  // Takes the load from the budget, or refuses the request if the model is closed, the deadline
  // cannot be met, it would wait at its place in the queue for longer than max_wait allows for its
  // priority and caller (not checked if the deadline is earlier than that), or a limit would be
  // exceeded. `running` is the number of running sequences.
  Admission Reserve(const Applicant& applicant, const Scheduler& scheduler, int64_t running,
                    MonoTime now);
  void Return(const RequestLoad& load) {
    budget_.Return(load);
    Reconsider();
  }

  // Returns the load of a request that is given up after Reserve.
  void GiveBack(const RequestLoad& load, const Admission& decision) {
    if (decision.deferred) budget_.Release(load);
    Return(load);
  }

  // Puts a request with a decision to defer it into the backlog. `id` is unique.
  void Defer(uint64_t id, const Applicant& applicant, const Scheduler& scheduler,
             const Admission& decision, MonoTime now);
  const Backlog& backlog() const { return backlog_; }
  // Takes the next request of the backlog. It should enter the queue if its deadline is reachable,
  // and fail otherwise.
  struct Taken {
    uint64_t id = 0;
    bool reachable = false;
  };
  Taken TakeNext(const Scheduler& scheduler, int64_t running, MonoTime now);
  // Removes a request from the backlog, if it is there, because it ends.
  void Leave(uint64_t id);
  // Returns whether the backlog has a request, and less than a full batch is ahead of its place in
  // the queue.
  bool HasRoomForNext(const Scheduler& scheduler, int64_t running, MonoTime now) const;

  // Returns the refusal that applies to every request of this caller, priority and deadline, or OK.
  // There is one if Reserve has refused such a request because of the wait or the number of
  // requests, and not because of its size. It holds until Reconsider, because more requests do not
  // change it.
  absl::Status Standing(uint32_t caller, int priority, MonoTime deadline, MonoTime now) const;
  // Forgets such refusals. Called when the queue or the backlog becomes shorter: a step begins, a
  // request leaves the backlog, or a request has ended.
  void Reconsider() { standing_.fill({}); }

  // A number of scored candidates, and the time that this took.
  struct ScoredCandidates {
    int64_t count = 0;
    nanoseconds duration{0};
  };
  // Learns the cost of scoring a candidate.
  void Learn(const ScoredCandidates& scored);
  // Returns the time to score `count` candidates.
  nanoseconds TimeOfScores(int64_t count) const;
  // Returns the expected wait of the least urgent request that is admitted now.
  nanoseconds Wait(int64_t running, const Scheduler& scheduler) const;

  // Learns the error of the forecast of a request.
  void Learn(const Outcome& outcome);
  // Learns the number of steps of a generating row.
  void Learn(const GeneratedRow& row);

  // Returns the expected number of steps of a row after its prompt if it may generate
  // `most_tokens`.
  int64_t LaterSteps(int32_t most_tokens) const;
  // The memory of the admitted requests.
  int64_t bytes() const { return budget_.bytes(); }

 private:
  // Returns whether a request would wait at its place for longer than its priority allows, unless
  // its deadline is earlier than that. An identified caller with other requests may use only a
  // share of that time. Sets `all_do` to whether this holds for all requests of its turns and
  // level.
  bool WaitsTooLong(const Applicant& applicant, int64_t running, const Scheduler& scheduler,
                    MonoTime now, bool* all_do) const;
  bool OutOfReach(const Applicant& applicant, const Scheduler& scheduler, int64_t running,
                  MonoTime now, nanoseconds* needed) const;
  // Returns the expected wait of a request with this load that enters the queue now, at the place
  // of `caller`'s next sequence.
  nanoseconds WaitOf(const RequestLoad& load, uint32_t caller, int64_t running,
                     const Scheduler& scheduler, MonoTime now) const;
  // Returns the time that a request of this level may wait in the queue.
  nanoseconds MaxWait(int priority) const;
  // Returns the entry of a request, without its id.
  Backlog::Entry EntryOf(const Applicant& applicant, const Scheduler& scheduler,
                         nanoseconds needed) const;
  // Takes the load of a request for the backlog, or refuses it. `all_wait` is whether all requests
  // of its caller and level would wait for too long in the queue.
  absl::Status TakeDeferred(const Applicant& applicant, const Scheduler& scheduler,
                            nanoseconds needed, MonoTime now, bool all_wait);

  // The last refusals of a level that apply to others; OK if there are none.
  struct StandingRefusals {
    absl::Status any{};  // of every request that may wait for longer than max_wait
    // Of requests of the callers without a deadline, and of those that may wait for longer than
    // max_wait, but not for longer than `patience`, and whose deadlines are not before
    // `patient_from`.
    absl::Status undated{};
    uint32_t undated_caller = 0;
    absl::Status patient{};
    uint32_t patient_caller = 0;
    nanoseconds patience{0};
    MonoTime patient_from{};
  };

  const Options options_;
  const nanoseconds max_wait_;  // 0: no limit
  AdmissionBudget budget_;
  ForecastError forecast_error_;
  bool draining_ = false;
  bool hung_ = false;
  Backlog backlog_;
  std::array<StandingRefusals, kPriorityLevels> standing_;
  double seconds_per_candidate_ = 0;  // a decayed mean; 0 if none was scored
  // Decayed means over rows that generated: the share of the allowed steps that they used, their
  // steps after the prompt, the positions that such a step attends to, and the computed prompt
  // tokens.
  double generated_share_ = 1;
  double mean_steps_ = 0;
  double mean_context_ = 0;
  double mean_prompt_ = 0;
};

}  // namespace sluice
