#include "engine/schedule/waiting.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "engine/schedule/step_shape.h"

namespace sluice {

MonoTime LastStart(std::span<WaitingSequence* const> batch, double cost) {
  MonoTime deadline = MonoTime::max();
  for (const WaitingSequence* sequence : batch) deadline = std::min(deadline, sequence->deadline);
  if (deadline == MonoTime::max()) return deadline;
  return deadline - nanoseconds(std::llround(2e9 * cost));
}

bool WorthWaiting(std::span<WaitingSequence* const> batch, const BatchDecision& launch,
                  const FormerInputs& inputs) {
  const BatchSize& size = launch.size;
  const ArrivalRate& arrivals = inputs.arrivals;
  if (arrivals.sequences_per_second <= 0) return false;
  const double mean_tokens = arrivals.tokens_per_second / arrivals.sequences_per_second;
  WaitingSequence next{.tokens = std::max(static_cast<int32_t>(std::lround(mean_tokens)), 1)};
  if (next.tokens > inputs.ladder->largest().tokens - size.tokens) return false;
  const Bucket* alone =
      inputs.ladder->Choose({.tokens = next.tokens, .sequences = 1, .longest = next.tokens});
  const Bucket* both = inputs.ladder->Choose({.tokens = size.tokens + next.tokens,
                                              .sequences = size.sequences + 1,
                                              .longest = std::max(size.longest, next.tokens)});
  if (alone == nullptr || both == nullptr) return false;

  WaitingSequence* const newcomer[] = {&next};
  const StepShape now_shape = EstimatedShapeOf(batch, launch.bucket);
  StepShape next_shape = EstimatedShapeOf(newcomer, *alone);
  // The newcomer has an adapter if the batch has any, and another one if most sequences differ.
  const int32_t adapters = now_shape.distinct_adapters;
  next_shape.distinct_adapters = adapters > 0 ? 1 : 0;
  const int32_t new_adapters = 2 * adapters > size.sequences ? 1 : 0;
  const StepShape both_shape{
      .bucket = *both,
      .computed_tokens = now_shape.computed_tokens + next_shape.computed_tokens,
      .context_tokens = now_shape.context_tokens + next_shape.context_tokens,
      .distinct_positions = std::max(now_shape.distinct_positions, next_shape.distinct_positions),
      .sampled_rows = now_shape.sampled_rows + next_shape.sampled_rows,
      .distinct_adapters = adapters + new_adapters};

  const double now_cost = inputs.costs->Estimate(now_shape);
  const double both_cost = inputs.costs->Estimate(both_shape);
  const double wait = 1 / arrivals.sequences_per_second;
  const double saved = now_cost + inputs.costs->Estimate(next_shape) - both_cost - wait;
  return saved > size.sequences * (wait + both_cost - now_cost);
}

}  // namespace sluice
