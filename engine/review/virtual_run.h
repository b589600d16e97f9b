// A device and its clients on virtual time: drives a Scheduler over prepared arrivals. Deterministic.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "engine/schedule/scheduler.h"

namespace sluice {

// One batch of a run, for those who watch.
struct VirtualBatch {
  MonoTime start{};
  MonoTime end{};
  BatchDecision decision{};
  std::span<WaitingSequence* const> sequences;  // valid during the call
};

struct VirtualRunOptions {
  // What a step really takes, in seconds. The scheduler's cost model learns it by observation.
  std::function<double(const StepShape&)> cost{};
  // A sequence of several steps computes its whole prefix again each time (true), or runs on with one
  // token. Its deadline also ends it between two steps.
  bool recompute = false;
  // A longer prompt is computed so many tokens at a time, which are one of the arrival's steps
  // together. 0: at once, as with `recompute`. See RunLimitsOf.
  int32_t chunk_tokens = 0;
  // Called after each batch (times are of the run), and for each sequence that ended: at `end`, or
  // expired unrun (`ran` false). May be empty.
  std::function<void(const VirtualBatch&)> on_batch{};
  std::function<void(size_t arrival, MonoTime end, bool ran)> on_done{};
  // Called first at the first arrival's time, then at each of the times that it returns, until that is
  // MonoTime::max(). For reviews of the ladder.
  std::function<MonoTime(MonoTime now, Scheduler* scheduler)> on_timer{};
};

struct VirtualResult {
  int64_t sequences = 0;  // that ran to their end
  int64_t expired = 0;
  int64_t batches = 0;
  int64_t useful_tokens = 0;
  int64_t bucket_tokens = 0;
  int64_t computed_tokens = 0;
  double busy_seconds = 0;
  double span_seconds = 0;            // from the first arrival to the end of the last batch
  double latency_sum_seconds = 0;     // from arrival to end
  double padding_efficiency() const;  // useful / bucket
};

// `arrivals` ascend in time, each fits the ladder at every step; the scheduler's queue is empty (CHECK).
// Pages are not accounted for.
// Runs until all have ended.
VirtualResult RunVirtually(std::span<const Arrival> arrivals, const VirtualRunOptions& options,
                           Scheduler* scheduler);

}  // namespace sluice
