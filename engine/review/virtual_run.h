// A device and its clients on virtual time. They drive a Scheduler over prepared arrivals.
// Deterministic.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "engine/schedule/admission_control.h"
#include "engine/schedule/host_times.h"
#include "engine/schedule/scheduler.h"

namespace sluice {

// A batch of a run, for callbacks.
struct VirtualBatch {
  MonoTime start{};
  MonoTime end{};
  BatchDecision decision{};
  std::span<WaitingSequence* const> sequences;  // valid during the call
};

// The drafted tokens of a run (DraftStep). Sequences have all tokens of their prompt and answer.
struct VirtualDrafts {
  int32_t tokens = 0;     // the most of a sequence in a step; 0: none
  int32_t sequences = 1;  // the most sequences of a step with drafts
  double acceptance = 0;  // the probability that a drafted token is right if all before it are
  double seconds = 0;     // of a draft model, for each token
};

struct VirtualRunOptions {
  // Returns the seconds that a step takes. The scheduler's cost model learns them from
  // observations.
  std::function<double(const StepShape&)> cost{};
  ComputedRows rows = ComputedRows::OfBucket();  // for VirtualResult::computed_tokens
  HostTimes host{};
  // Returns the time that a step, or the host's work between steps, takes from now on, if the costs
  // or the host times give `work`. If empty, `work` is used.
  std::function<nanoseconds(MonoTime now, nanoseconds work)> stretch{};
  // If true, a sequence with several steps computes its whole prefix again in each step. Otherwise
  // it continues with one token. In both cases, its deadline can also end it between two steps.
  bool recompute = false;
  VirtualDrafts drafts{};  // none with `recompute`
  // The maximum number of prompt tokens per step if any arrival generates. Otherwise, or if 0, the
  // tokens of the largest bucket. A longer prompt is computed in chunks, which together count as
  // one of the arrival's steps. With `recompute`, prompts are not cut. See RunLimitsOf.
  int32_t chunk_tokens = 0;
  // on_batch is called after each batch, and on_done for each sequence that ended at `end`: with
  // `ran` if it ran to its end, otherwise it expired. Times are in the run's virtual time. May be
  // empty.
  std::function<void(const VirtualBatch&)> on_batch{};
  std::function<void(size_t arrival, MonoTime end, bool ran)> on_done{};
  // If not nullptr, decides on each arrival as the daemon does. Otherwise every arrival is
  // admitted.
  AdmissionControl* admission = nullptr;
  std::function<void(size_t arrival)> on_refused{};
  // Called at the first arrival's time, then at each time that it returns, until it returns
  // MonoTime::max(). For reviews of the ladder.
  std::function<MonoTime(MonoTime now, Scheduler* scheduler)> on_timer{};
};

struct VirtualResult {
  int64_t sequences = 0;  // sequences that ran to their end
  int64_t expired = 0;
  int64_t refused = 0;
  int64_t batches = 0;
  int64_t drafted = 0, accepted = 0;  // tokens
  int64_t useful_tokens = 0;
  int64_t bucket_tokens = 0;
  int64_t computed_tokens = 0;
  double busy_seconds = 0;
  double span_seconds = 0;         // from the first arrival to the end of the last batch
  double latency_sum_seconds = 0;  // from arrival to end
  double bucket_fill() const;      // useful / bucket
};

// Runs until all arrivals have ended. Requires that `arrivals` ascend in time, that each fits the
// ladder at every step and that the scheduler's queue is empty (CHECK). KV pages are not simulated.
VirtualResult RunVirtually(std::span<const Arrival> arrivals, const VirtualRunOptions& options,
                           Scheduler* scheduler);

}  // namespace sluice
