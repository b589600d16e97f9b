// Admits requests to a model and forecasts their times. The forecasts learn from finished requests.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>

#include "absl/status/status.h"
#include "base/clock.h"
#include "engine/observer.h"
#include "engine/options.h"
#include "engine/request.h"
#include "engine/schedule/admission.h"
#include "engine/schedule/scheduler.h"
#include "engine/schedule_values.h"

namespace sluice {

// Returns the error for requests of a model whose device hangs.
absl::Status HungError();

// Decides only from its arguments: the request, the scheduler's state and the time. It has no
// clock, lock or thread. Not thread-safe.
//
//   AdmissionControl admission(options.queue, /*reuses_prefixes=*/true);
//   SLUICE_RETURN_IF_ERROR(admission.Reserve(request, load, scheduler, running, now, &needed));
//   ...                      // the request runs
//   admission.Return(load);  // it has ended
class AdmissionControl {
 public:
  // A request that has ended.
  struct Outcome {
    MonoTime queued{};
    MonoTime ended{};
    MonoTime deadline = MonoTime::max();
    nanoseconds needed{0};  // the forecast of Reserve
    absl::Status status;
  };
  // A finished row that generated tokens.
  struct GeneratedRow {
    int64_t tokens = 0;           // generated tokens
    int64_t most_tokens = 0;      // the most that it was allowed, > 1
    int64_t computed_prompt = 0;  // prompt tokens that were not found in the cache
    int64_t context = 0;          // positions attended to in its middle step
  };

  // With `reuses_prefixes`, only the last token of each prompt is certain to be computed.
  AdmissionControl(const QueueOptions& options, bool reuses_prefixes)
      : reuses_prefixes_(reuses_prefixes),
        max_wait_(std::chrono::microseconds(options.max_wait_us)),
        budget_(options) {}

  // Drain and Hang make every later request be refused, because the model drains or its device
  // hangs.
  void Drain() { draining_ = true; }
  void Hang() { hung_ = true; }
  bool draining() const { return draining_; }

  // Returns a refusal if the model drains or hangs.
  absl::Status Closed() const;
  // Returns a refusal if the request itself requires one: a row has more tokens than the model has
  // positions, or the deadline has passed.
  static absl::Status Examine(const Request& request, int64_t max_positions, MonoTime now,
                              int64_t only_length = 0);
  // Takes `load` from the budget, or refuses the request if the model is closed, the deadline
  // cannot be met, the expected wait is longer than max_wait allows for its priority and caller
  // (not checked if the deadline is earlier than that), or a limit would be exceeded. `running` is
  // the number of running sequences.
  // If the request has a deadline, sets `needed` to the forecast.
  absl::Status Reserve(const Request& request, const RequestLoad& load, const Scheduler& scheduler,
                       int64_t running, MonoTime now, nanoseconds* needed);
  void Return(const RequestLoad& load) {
    budget_.Return(load);
    Reconsider();
  }

  // Returns the refusal that applies to every request of this priority that may wait for `allowed`,
  // or OK. There is one if Reserve has refused such a request because of the wait or the number of
  // requests. It holds until Reconsider, because more requests do not change it.
  absl::Status Standing(int priority, nanoseconds allowed) const;
  // Forgets such refusals. Called when the queue becomes shorter: a step begins, or a request has
  // ended.
  void Reconsider() { standing_.fill(absl::OkStatus()); }

  // A number of scored candidates, and the time that this took.
  struct ScoredCandidates {
    int64_t count = 0;
    nanoseconds duration{0};
  };
  // Learns the cost of scoring a candidate.
  void Learn(const ScoredCandidates& scored);
  // Returns the time to score `count` candidates.
  nanoseconds TimeOfScores(int64_t count) const;
  // Returns the expected wait of a request that is admitted now.
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
  // Returns whether a request that may wait for `allowed` would wait for longer than its priority
  // allows. If callers are identified, its caller may use only a share of that time. Sets `all_do`
  // to whether this holds for every caller.
  bool WaitsTooLong(const RequestLoad& load, nanoseconds allowed, int64_t running,
                    const Scheduler& scheduler, bool* all_do) const;
  bool OutOfReach(const Request& request, const Scheduler& scheduler, int64_t running, MonoTime now,
                  nanoseconds* needed) const;

  const bool reuses_prefixes_;
  const nanoseconds max_wait_;  // 0: no limit
  AdmissionBudget budget_;
  ForecastError forecast_error_;
  bool draining_ = false;
  bool hung_ = false;
  std::array<absl::Status, kPriorityLevels> standing_;  // OK, or the last refusal of the level
  double seconds_per_candidate_ = 0;                    // a decayed mean; 0 if none was scored
  // Decayed means over rows that generated: the share of the allowed steps that they used, their
  // steps after the prompt, the positions that such a step attends to, and the computed prompt
  // tokens.
  double generated_share_ = 1;
  double mean_steps_ = 0;
  double mean_context_ = 0;
  double mean_prompt_ = 0;
};

}  // namespace sluice
