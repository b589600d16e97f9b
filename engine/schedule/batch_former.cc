#include "engine/schedule/batch_former.h"

#include <algorithm>
#include <chrono>

#include "kernels/check.h"

namespace sluice {
namespace {

struct Prefix {
  int32_t sequences = 0;
  int32_t tokens = 0;
  int32_t longest = 0;
};

Prefix LongestPrefix(std::span<const WaitingSequence* const> waiting, const Bucket& capacity) {
  Prefix prefix;
  for (const WaitingSequence* sequence : waiting) {
    if (prefix.sequences == capacity.sequences) break;
    if (sequence->tokens > capacity.tokens - prefix.tokens) break;
    ++prefix.sequences;
    prefix.tokens += sequence->tokens;
    prefix.longest = std::max(prefix.longest, sequence->tokens);
  }
  return prefix;
}

// The time up to which these sequences may be held back. Twice the cost is kept for a replay that
// is to meet a deadline, since estimates err.
MonoTime HoldUntil(std::span<const WaitingSequence* const> batch, nanoseconds max_delay,
                   nanoseconds cost) {
  MonoTime until = MonoTime::max();
  for (const WaitingSequence* sequence : batch) {
    until = std::min({until, sequence->queued + max_delay, sequence->deadline - 2 * cost});
  }
  return until;
}

}  // namespace

BatchDecision FormBatch(std::span<const WaitingSequence* const> waiting, const Ladder& ladder,
                        const CostModel& costs, const BatchPolicy& policy, MonoTime now) {
  if (waiting.empty()) return {};
  const Bucket& capacity = ladder.largest();
  const Prefix prefix = LongestPrefix(waiting, capacity);
  SLUICE_CHECK(prefix.sequences > 0);

  BatchDecision launch{.sequences = prefix.sequences,
                       .tokens = prefix.tokens,
                       .bucket = *ladder.Choose(prefix.tokens, prefix.sequences)};
  const bool full = static_cast<size_t>(prefix.sequences) < waiting.size() ||
                    prefix.sequences == capacity.sequences || prefix.tokens == capacity.tokens;
  if (full) {
    launch.trigger = Trigger::kFull;
    return launch;
  }
  if (policy.draining) {
    launch.trigger = Trigger::kDrain;
    return launch;
  }
  if (policy.max_queue_delay == nanoseconds::zero()) {
    launch.trigger = Trigger::kIdle;
    return launch;
  }
  const std::chrono::duration<double> cost(costs.Estimate({.bucket = launch.bucket,
                                                           .computed_tokens = prefix.tokens,
                                                           .context_tokens = prefix.tokens,
                                                           .distinct_positions = prefix.longest,
                                                           .sampled_rows = prefix.sequences}));
  const MonoTime hold_until =
      HoldUntil(waiting.first(static_cast<size_t>(prefix.sequences)), policy.max_queue_delay,
                std::chrono::duration_cast<nanoseconds>(cost));
  if (hold_until > now) return {.wait_until = hold_until};
  launch.trigger = Trigger::kDelay;
  return launch;
}

}  // namespace sluice
