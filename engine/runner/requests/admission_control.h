// The admission of requests to a model, and the forecasts for it, which learn from finished
// requests.
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

// Returns the error of requests whose model's device hangs.
absl::Status HungError();

// Decides only from its arguments, which are the request, the scheduler's state and the time; it
// has no clock, lock or thread. Not thread-safe.
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
    nanoseconds needed{0};  // as forecast by Reserve
    absl::Status status;
  };
  // A row that generated and has ended.
  struct GeneratedRow {
    int64_t tokens = 0;           // the tokens that it generated
    int64_t most_tokens = 0;      // the most that it was allowed, > 1
    int64_t computed_prompt = 0;  // prompt tokens that were not found in the cache
    int64_t context = 0;          // the positions that a middle step of it attended to
  };

  // With `reuses_prefixes`, only the last token of each prompt is sure to be computed.
  AdmissionControl(const QueueOptions& options, bool reuses_prefixes)
      : reuses_prefixes_(reuses_prefixes),
        max_wait_(std::chrono::microseconds(options.max_wait_us)),
        budget_(options) {}

  // Refuse every request from now on: because the model drains, or because its device hangs.
  void Drain() { draining_ = true; }
  void Hang() { hung_ = true; }
  bool draining() const { return draining_; }

  // Returns a refusal if the model drains or hangs.
  absl::Status Closed() const;
  // Returns a refusal if the request alone requires one: a row is longer than the model's
  // positions, or the deadline has passed.
  static absl::Status Examine(const Request& request, int64_t max_positions, MonoTime now,
                              int64_t only_length = 0);
  // Takes `load` from the budget, or refuses the request: because the model is closed, the deadline
  // is out of reach, what waits would take longer than requests may wait (a nearer deadline is
  // judged by itself), or a bound would be exceeded. `running` is the number of running sequences.
  // Sets `needed` to the forecast if the request has a deadline.
  absl::Status Reserve(const Request& request, const RequestLoad& load, const Scheduler& scheduler,
                       int64_t running, MonoTime now, nanoseconds* needed);
  void Return(const RequestLoad& load) {
    budget_.Return(load);
    Reconsider();
  }

  // Returns the refusal of a request of this priority that may wait for `allowed`, whatever else it
  // is, if Reserve has refused one for what waits or for the number of requests, and that still
  // holds. More requests change nothing about it: it holds until Reconsider.
  absl::Status Standing(int priority, nanoseconds allowed) const;
  // Forgets such refusals, because the queue gets shorter: a step begins, or a request has ended.
  void Reconsider() { standing_.fill(absl::OkStatus()); }

  // A number of candidates that were scored, and the time that this took.
  struct ScoredCandidates {
    int64_t count = 0;
    nanoseconds duration{0};
  };
  // Learns what the score of a candidate costs.
  void Learn(const ScoredCandidates& scored);
  // Returns the time that `count` candidates take.
  nanoseconds TimeOfScores(int64_t count) const;
  // Returns about how long a request that is admitted now waits behind the others.
  nanoseconds Wait(int64_t running, const Scheduler& scheduler) const;

  // Learns how far off the forecast of a request was.
  void Learn(const Outcome& outcome);
  // Learns how many steps a generating row takes.
  void Learn(const GeneratedRow& row);

  // Returns the number of steps that a row probably takes after its prompt if it may generate
  // `most_tokens`.
  int64_t LaterSteps(int32_t most_tokens) const;
  // The memory of the admitted requests.
  int64_t bytes() const { return budget_.bytes(); }

 private:
  // Returns whether a request that may wait for `allowed` would wait for longer than those of its
  // priority may. Its caller has no more than a share of that time where callers are told apart.
  // Sets `all_do` to whether this is so for every caller.
  bool WaitsTooLong(const RequestLoad& load, nanoseconds allowed, int64_t running,
                    const Scheduler& scheduler, bool* all_do) const;
  bool OutOfReach(const Request& request, const Scheduler& scheduler, int64_t running, MonoTime now,
                  nanoseconds* needed) const;

  const bool reuses_prefixes_;
  const nanoseconds max_wait_;  // 0: any time
  AdmissionBudget budget_;
  ForecastError forecast_error_;
  bool draining_ = false;
  bool hung_ = false;
  std::array<absl::Status, kPriorityLevels> standing_;  // OK, or the last refusal of the level
  double seconds_per_candidate_ = 0;                    // a decayed mean; 0 if none was scored
  // Decayed means over rows that generated: the share of the allowed steps that they took, their
  // steps after the prompt, the positions that such a step attends to, and the prompt tokens that
  // were computed.
  double generated_share_ = 1;
  double mean_steps_ = 0;
  double mean_context_ = 0;
  double mean_prompt_ = 0;
};

}  // namespace sluice
